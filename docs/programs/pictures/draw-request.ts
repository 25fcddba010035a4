/**
 * Draws the way of a request for README.md and docs/internals/architecture.md: `npm run plots`. It has no input, so it makes the same bytes
 * every time. test/docs/pictures.test.ts fails when the file differs.
 *
 * The ground is opaque: the theme of GitHub can differ from the color scheme of the browser, and the picture stays readable then.
 * Boxes leave room for fonts that are wider than those of the usual systems.
 */
import { writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { inBothSchemes } from './colors.ts'
import { svgOf, text } from './svg.ts'

const [WIDTH, HEIGHT] = [820, 400]

/** @returns the SVG document */
export function drawRequest(): string {
  const client = { x: 16, width: 76, y: 24, height: 352 }
  const worker = { x: 162, width: 286, y: 24, height: 352 }
  const redis = { x: 572, width: 232, y: 24, height: 204 }
  const origin = { x: 572, width: 232, y: 272, height: 52 }
  return svgOf({
    width: WIDTH,
    height: HEIGHT,
    title: 'The way of a request through Sluice',
    description:
      'A client sends a request to the Worker. The Worker matches the route and its rules, identifies the caller by API key, JWT or ' +
      'address, and binds the rules to identities. It decides all rules at once, with one HTTP request to Redis that runs one EVALSHA. ' +
      'The script reads the record of the key, the plan and the block, and checks every rule, by the clock of Redis. If all allow, all ' +
      'are charged; if one refuses, none is charged. The Worker forwards an allowed request to the origin. It refuses the others with ' +
      'a 401, 403, 429 or 503 as problem+json; a 429 has Retry-After. A remembered refusal or a lease needs no trip to Redis.',
    style: STYLE,
    body: [
      `<rect class="ground" x="0.5" y="0.5" width="${WIDTH - 1}" height="${HEIGHT - 1}" rx="8"/>`,
      ...box(client),
      text(client.x + client.width / 2, 52, 'Client', 'name middle'),

      ...box(worker, 'Worker'),
      ...step(92, 'match', 'route and rules'),
      ...step(118, 'identify', 'API key, JWT or address'),
      ...step(144, 'bind', 'rules × identities'),
      ...step(170, 'decide', 'all rules at once'),
      '<path class="line dashed" d="M186 182V250"/>',
      '<path class="head" d="M181 249h10l-5 9z"/>',
      text(204, 212, 'no trip: a remembered refusal', 'small'),
      text(204, 229, 'or a lease', 'small'),
      divider(worker, 270),
      ...step(303, 'forward', 'if allowed', 'go'),
      ...step(337, 'refuse', 'problem+json: 401, 403,', 'stop'),
      text(254, 355, '429 or 503 with Retry-After'),

      ...box(redis, 'Redis'),
      text(590, 74, 'one script, on its own clock'),
      divider(redis, 90),
      text(590, 115, 'reads key record, plan, block;'),
      text(590, 135, 'checks every rule'),
      divider(redis, 152),
      text(590, 180, 'all allow', 'strong go'),
      text(692, 180, 'all charged'),
      text(590, 206, 'one refuses', 'strong stop'),
      text(692, 206, 'none charged'),

      ...box(origin),
      text(590, 303, 'Origin', 'name'),
      text(650, 303, 'your API'),

      ...arrow(right(client), worker.x, 88),
      text(127, 80, 'request', 'small middle'),
      ...arrow(right(worker), redis.x, 166),
      text(510, 141, 'one HTTP request,', 'small middle'),
      text(510, 158, 'one EVALSHA', 'small middle'),
      ...arrow(redis.x, right(worker), 186),
      ...arrow(right(worker), origin.x, 298, 'go'),
      ...arrow(worker.x, right(client), 298, 'go'),
      ...arrow(worker.x, right(client), 332, 'stop'),
    ],
  })
}

interface Box {
  x: number
  y: number
  width: number
  height: number
}

/** How a request ends: forwarded or refused. Empty for the steps before that. */
type Outcome = 'go' | 'stop' | ''

const right = ({ x, width }: Box) => x + width

function box({ x, y, width, height }: Box, name?: string): string[] {
  return [
    `<rect class="box" x="${x}" y="${y}" width="${width}" height="${height}" rx="6"/>`,
    ...(name ? [text(x + 18, y + 28, name, 'name')] : []),
  ]
}

function divider({ x, width }: Box, y: number): string {
  return `<path class="divider" d="M${x + 18} ${y}H${x + width - 18}"/>`
}

/** A step of the Worker. */
function step(y: number, verb: string, what: string, outcome: Outcome = ''): string[] {
  return [text(180, y, verb, `strong ${outcome}`.trim()), text(254, y, what)]
}

function arrow(from: number, to: number, y: number, outcome: Outcome = ''): string[] {
  const ahead = from < to ? 1 : -1
  const classes = (kind: string) => `${kind} ${outcome}`.trim()
  return [
    `<path class="${classes('line')}" d="M${from} ${y}H${to - ahead * 8}"/>`,
    `<path class="${classes('head')}" d="M${to - ahead * 9} ${y - 5}v10l${ahead * 9} -5z"/>`,
  ]
}

const COLORS = inBothSchemes(
  ({ ground, box, border, ink, faint, go, stop }) => `
.ground { fill: ${ground}; stroke: ${border} }
.box { fill: ${box}; stroke: ${border} }
.divider { stroke: ${border} }
text { fill: ${ink} }
text.small { fill: ${faint} }
.line { stroke: ${faint} }
.head { fill: ${faint} }
text.go, .head.go { fill: ${go} }
text.stop, .head.stop { fill: ${stop} }
.line.go { stroke: ${go} }
.line.stop { stroke: ${stop} }
`,
)

const STYLE = `
text { font: 13px system-ui, -apple-system, 'Segoe UI', sans-serif }
.small { font-size: 12px }
.middle { text-anchor: middle }
.name { font-size: 15px; font-weight: 600 }
.strong { font-weight: 600 }
.line { stroke-width: 1.5; fill: none }
.dashed { stroke-dasharray: 5 4 }
${COLORS}
`

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  writeFileSync(new URL('../../pictures/request.svg', import.meta.url), drawRequest())
  console.log('Made request.svg.')
}
