// Whether what stands in an element can be read, whatever the page around has set: its custom properties, and its styles
// of what the element stands in.

const CONTRAST_MIN = 3;
const PIXELS_MIN = 6;
const OPACITY_MIN = 0.5;
const BLUR_MAX = 1; // pixels
const LOOKED_AT_MAX = 1_000;
const TEXTS = "h1, h2, h3, .value, .value *, button.main";

export function isLegible(place: HTMLElement): boolean {
  let opacity = 1;
  const around: string[] = []; // the colours behind the element, the outermost first
  for (let each: Node | null = place; each !== null; each = outer(each)) {
    const style = getComputedStyle(each as Element);
    opacity *= Number(style.opacity) * throughFilter(style.filter);
    around.unshift(style.backgroundColor);
  }
  if (opacity < OPACITY_MIN) return false;
  const scale = scaleOf(place);
  const looks = new Set<string>();
  for (const each of [...place.querySelectorAll<HTMLElement>(TEXTS)].slice(0, LOOKED_AT_MAX)) {
    const { color, fontSize } = getComputedStyle(each);
    if (parseFloat(fontSize) * scale < PIXELS_MIN) return false;
    const behind: string[] = [];
    for (let at: Element | null = each; at !== null && at !== place; at = at.parentElement) behind.unshift(getComputedStyle(at).backgroundColor);
    looks.add([...around, ...behind, color].join("|"));
  }
  return [...looks].every((each) => contrastOf(each.split("|")) >= CONTRAST_MIN);
}

/** What a filter leaves of the difference between text and ground: 0 where it blurs letters away. */
function throughFilter(filter: string): number {
  let left = 1;
  for (const [, name, amount = ""] of filter.matchAll(/([a-z-]+)\(([^()]*)/g)) {
    if (name === "opacity" || name === "contrast" || name === "brightness") left *= Math.min(1, parseFloat(amount));
    else if (name === "blur" && parseFloat(amount) > BLUR_MAX) left = 0;
  }
  return left;
}

/** By how much transformations of the element, or around it, change the size of its letters. */
function scaleOf(place: HTMLElement): number {
  const { width, height } = place.getBoundingClientRect();
  const area = place.offsetWidth * place.offsetHeight;
  return area === 0 ? 1 : Math.sqrt((width * height) / area);
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
