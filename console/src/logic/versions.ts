// How the API names versions of workflows.

interface Versioned {
  version: number;
  sha256: string;
  dev: boolean;
}

/** A version behind its workflow's name: `2`, or `2+3f2a9c11` for a copy that may be replaced. */
export function nameOfVersion(of: Versioned): string {
  return of.dev ? `${of.version}+${of.sha256.slice(0, 8)}` : String(of.version);
}

/** A version with its workflow's name. */
export function referenceOf(workflow: string, version: Versioned): string {
  return `${workflow}@${nameOfVersion(version)}`;
}
