// A picture, sound or file: what is kept here is shown, what is elsewhere is a link that one may follow.

import { useEffect, useRef } from "react";
import { fetchAs } from "../api/client.ts";
import { problemOf } from "../api/problems.ts";
import type { Json } from "../api/types.gen.ts";
import { host } from "../host.ts";
import { isObject } from "../logic/json.ts";
import { useText } from "../text/index.ts";
import { ProblemNote } from "./Problem.tsx";
import { useSending } from "./useSending.ts";

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
      {here && !host.console && <Drawn path={here} name={name} picture={type === "image"} />}
      {here && host.console && type === "image" && <img src={here} alt={name} loading="lazy" />}
      {here && host.console && type === "audio" && <audio src={here} controls preload="none" aria-label={name} />}
      {here && host.console && type === "video" && <video src={here} controls preload="none" aria-label={name} />}
      <figcaption className="small">
        {here ? (
          host.console && (
            <a href={here} download>
              {name}
            </a>
          )
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

/** A file of this server in a page of elsewhere, which no address opens without a token: a picture is drawn, and all are
 * given on a press. */
export function Drawn({ path, name, picture = false }: { path: string; name: string; picture?: boolean }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const { busy, problem, send } = useSending();
  useEffect(() => {
    const leaving = new AbortController();
    if (picture) void draw(path, canvas.current, leaving.signal).catch(() => undefined); // there is the button
    return () => leaving.abort();
  }, [path, picture]);
  const give = (): Promise<unknown> =>
    send(async (signal) => {
      const url = URL.createObjectURL(await fileOf(path, signal));
      const link = Object.assign(document.createElement("a"), { href: url, download: name });
      link.click();
      setTimeout(() => URL.revokeObjectURL(url), 60_000);
    });
  return (
    <>
      {picture && <canvas ref={canvas} width={0} height={0} role="img" aria-label={name} />}
      <button type="button" className={`more ${busy ? "busy" : ""}`} disabled={busy} onClick={() => void give()}>
        {name}
      </button>
      {problem && <ProblemNote problem={problem} />}
    </>
  );
}

async function fileOf(path: string, signal: AbortSignal): Promise<Blob> {
  const response = await fetchAs(path, { signal });
  if (!response.ok) throw await problemOf(response);
  return response.blob();
}

async function draw(path: string, canvas: HTMLCanvasElement | null, signal: AbortSignal): Promise<void> {
  const image = await createImageBitmap(await fileOf(path, signal));
  if (canvas === null || signal.aborted) return;
  canvas.width = image.width;
  canvas.height = image.height;
  canvas.getContext("2d")?.drawImage(image, 0, 0);
  image.close();
}

const FILES = new Set(KINDS);

export function hostOf(address: string): string {
  try {
    return new URL(address).host.slice(0, 100);
  } catch {
    return "";
  }
}
