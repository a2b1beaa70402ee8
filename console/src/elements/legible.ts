// Whether what stands in an element can be read, whatever the page around has set: its custom properties, and its styles
// of what the element stands in.

const CONTRAST_MIN = 3;
const PIXELS_MIN = 6;
const OPACITY_MIN = 0.5;
const LOOKED_AT_MAX = 1_000;
const TEXTS = "h1, h2, h3, .value, .value *, button.main";

export function isLegible(place: HTMLElement): boolean {
  let opacity = 1;
  const around: string[] = []; // the colours behind the element, the outermost first
  for (let each: Node | null = place; each !== null; each = outer(each)) {
    const style = getComputedStyle(each as Element);
    opacity *= Number(style.opacity);
    around.unshift(style.backgroundColor);
  }
  if (opacity < OPACITY_MIN) return false;
  const looks = new Set<string>();
  for (const each of [...place.querySelectorAll<HTMLElement>(TEXTS)].slice(0, LOOKED_AT_MAX)) {
    const { color, fontSize } = getComputedStyle(each);
    if (parseFloat(fontSize) < PIXELS_MIN) return false;
    const behind: string[] = [];
    for (let at: Element | null = each; at !== null && at !== place; at = at.parentElement) behind.unshift(getComputedStyle(at).backgroundColor);
    looks.add([...around, ...behind, color].join("|"));
  }
  return [...looks].every((each) => contrastOf(each.split("|")) >= CONTRAST_MIN);
}

const outer = (node: Node): Node | null => node.parentElement ?? (node.parentNode instanceof ShadowRoot ? node.parentNode.host : null);

/** Between the last colour and those below it, of which the first lies on white. */
function contrastOf(colours: string[]): number {
  const pen = new OffscreenCanvas(1, 1).getContext("2d");
  if (pen === null) return Infinity;
  const [ground, text] = [["#fff", ...colours.slice(0, -1)], colours.slice(-1)].map((layers) => {
    for (const each of layers) {
      pen.fillStyle = each;
      pen.fillRect(0, 0, 1, 1);
    }
    const [red = 0, green = 0, blue = 0] = [...pen.getImageData(0, 0, 1, 1).data].map((part) => (part / 255) ** 2.2);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05;
  });
  return Math.max(ground! / text!, text! / ground!);
}
