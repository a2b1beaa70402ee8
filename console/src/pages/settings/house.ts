/** Whether nobody is asked here who they are. */
export function isOpenHouse(way: string): boolean {
  return !["session", "key", "token", "jwt", "link", "ticket"].includes(way);
}
