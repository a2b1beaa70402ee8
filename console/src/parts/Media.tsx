// A picture, sound or file: what is kept here is shown, what is elsewhere is a link that one may follow.

import type { Json } from "../api/types.gen.ts";
import { isObject } from "../logic/json.ts";
import { useText } from "../text/index.ts";

const FILE = /^file_[A-Za-z0-9_-]{1,100}$|^[0-9a-f]{64}$/;
const KINDS = ["image", "audio", "video", "document", "file", "binary"];

/** The kind of a value that stands for a file; null: it is none. */
export function mediaOf(value: Record<string, Json>): string | null {
  const type = value["type"];
  if (typeof type !== "string" || !KINDS.includes(type)) return null;
  const source = isObject(value["source"]) ? value["source"] : value;
  return typeof (source["value"] ?? source["url"] ?? value["file"]) === "string" ? type : null;
}

export function Media({ type, part }: { type: string; part: Record<string, Json> }) {
  const t = useText();
  const source = isObject(part["source"]) ? part["source"] : part;
  const kind = source["type"];
  const value = source["value"] ?? source["url"] ?? part["file"];
  const name = String(part["name"] ?? part["filename"] ?? source["name"] ?? t.media.kinds[type] ?? type).slice(0, 200);
  const media = String(source["mimeType"] ?? part["mimeType"] ?? part["media_type"] ?? "").slice(0, 100);
  const here = typeof value === "string" && (kind === "file" || FILES.has(String(kind))) && FILE.test(value) ? `/v1/files/${value}` : null;
  const there = typeof value === "string" && /^https?:\/\//i.test(value) ? value : null;
  return (
    <figure className="media">
      {here && type === "image" && <img src={here} alt={name} loading="lazy" />}
      {here && type === "audio" && <audio src={here} controls preload="none" aria-label={name} />}
      {here && type === "video" && <video src={here} controls preload="none" aria-label={name} />}
      <figcaption className="small">
        {here ? (
          <a href={here} download>
            {name}
          </a>
        ) : there ? (
          <a href={there} target="_blank" rel="noreferrer noopener">
            {name}
          </a>
        ) : (
          name
        )}{" "}
        <span className="quiet">
          {media} {there && t.media.elsewhere(hostOf(there))} {kind === "data" && typeof value === "string" && t.media.inline(value.length)}
        </span>
      </figcaption>
    </figure>
  );
}

const FILES = new Set(KINDS);

export function hostOf(address: string): string {
  try {
    return new URL(address).host.slice(0, 100);
  } catch {
    return "";
  }
}
