/**
 * Draws what all or nothing means, for README.md: `npm run plots`. It has no input, so it makes the same bytes every time.
 * test/docs/pictures.test.ts fails when the file differs.
 */
import { writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { inBothSchemes } from './colors.ts'
import { svgOf, text } from './svg.ts'

const [WIDTH, HEIGHT] = [820, 300]
const LIMITS = [
  '10 a second per user',
  '120 a minute per user',
  '1,000 an hour per user',
  '5,000 a day per user',
  '50 a second per address',
  '600 a minute per address',
]

/** @returns the SVG document */
export function drawBenefit(): string {
  return svgOf({
    width: WIDTH,
    height: HEIGHT,
    title: 'Six limits, of which the last one refuses',
    description:
      'On the left, a request makes six calls, one for each limit. Five limits admit it and are charged, the sixth refuses, and ' +
      'the request gets a 429: five limits are charged for nothing. On the right, Sluice decides the six limits in one call. The sixth ' +
      'refuses, nothing is charged, and the request gets a 429.',
    style: STYLE,
    body: [
      `<rect class="ground" x="0.5" y="0.5" width="${WIDTH - 1}" height="${HEIGHT - 1}" rx="8"/>`,
      ...panel(
        16,
        'One call for each limit',
        LIMITS.map(() => true),
        '429, and five limits charged',
        'stop',
      ),
      ...panel(
        418,
        'Sluice: one call for all limits',
        LIMITS.map(() => false),
        '429, and nothing charged',
        'go',
      ),
    ],
  })
}

/** @param isCharged whether a limit that admits is charged */
function panel(
  x: number,
  title: string,
  isCharged: readonly boolean[],
  result: string,
  tone: 'go' | 'stop',
): string[] {
  const top = 64
  const rows = LIMITS.flatMap((limit, i) => {
    const y = top + 30 * i
    const refuses = i === LIMITS.length - 1
    const [what, classes] = refuses
      ? ['refuses', 'strong']
      : isCharged[i]
        ? ['charged', 'stop']
        : ['not charged', 'go']
    return [
      `<rect class="row" x="${x + 74}" y="${y}" width="294" height="24" rx="4"/>`,
      text(x + 86, y + 17, limit),
      text(x + 356, y + 17, what, `${classes} end`),
      ...(title.startsWith('Sluice') ? [] : arrow(x + 18, x + 72, y + 12)),
    ]
  })
  const middle = top + 15 * LIMITS.length - 3
  const all = title.startsWith('Sluice')
    ? [
        `<path class="line" d="M${x + 66} ${top}h-6v${30 * LIMITS.length - 6}h6"/>`,
        ...arrow(x + 18, x + 58, middle),
      ]
    : []
  return [
    `<rect class="box" x="${x}" y="16" width="386" height="268" rx="6"/>`,
    text(x + 18, 44, title, 'name'),
    ...rows,
    ...all,
    text(x + 368, 270, result, `name ${tone} end`),
  ]
}

function arrow(from: number, to: number, y: number): string[] {
  return [
    `<path class="line" d="M${from} ${y}H${to - 8}"/>`,
    `<path class="head" d="M${to - 9} ${y - 5}v10l9 -5z"/>`,
  ]
}

const COLORS = inBothSchemes(
  ({ ground, box, border, ink, faint, go, stop }) => `
.ground { fill: ${ground}; stroke: ${border} }
.box { fill: ${box}; stroke: ${border} }
.row { fill: ${ground}; stroke: ${border} }
text { fill: ${ink} }
.line { stroke: ${faint} }
.head { fill: ${faint} }
text.go { fill: ${go} }
text.stop { fill: ${stop} }
`,
)

const STYLE = `
text { font: 13px system-ui, -apple-system, 'Segoe UI', sans-serif }
.name { font-size: 15px; font-weight: 600 }
.strong { font-weight: 600 }
.end { text-anchor: end }
.line { stroke-width: 1.5; fill: none }
${COLORS}
`

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  writeFileSync(new URL('../../pictures/benefit.svg', import.meta.url), drawBenefit())
  console.log('Made benefit.svg.')
}
