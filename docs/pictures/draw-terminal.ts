/**
 * Draws a recorded session as an animated SVG: rows appear in their order, and statuses one by one. Without animation, as for readers
 * who prefer reduced motion, everything is visible, which is also the last frame. A terminal is dark on a light page too.
 */
import { escapeXml, svgOf } from './svg.ts'

/** What a terminal shows in one or more rows. */
export interface Entry {
  /** `pause` is an empty row, `note` a comment of the shell. */
  kind: 'command' | 'output' | 'note' | 'pause'
  text: string
}

/** Longer text continues in the next row. */
const COLUMNS = 100
const INDENT = '    '

/** How long the animation takes until it begins again, and how long its last frame stays at least (seconds). */
const [LOOP_SECONDS, LAST_FRAME_SECONDS] = [15, 2.5]

/** The time between the appearance of one entry or status and the next, by kind of the next (seconds). */
const AFTER_SECONDS = { command: 0.8, output: 0.14, note: 0.6, pause: 0, status: 0.09 }
/** How long a command takes to its first output. */
const RUN_SECONDS = 0.5

const [WIDTH, LEFT, TOP, ROW_HEIGHT, BOTTOM] = [820, 20, 58, 18, 16]

/**
 * @param entries text without control characters
 * @returns the SVG document
 * @throws Error where the session is too long for the loop
 */
export function drawTerminal(entries: readonly Entry[], title: string, description: string): string {
  const times: number[] = []
  let time = 0
  /** @returns the class of what appears then */
  const appears = (after: number) => {
    time += after
    times.push(time)
    return `t${times.length - 1}`
  }

  const rows: string[] = []
  const row = (content: string, classes: string) => {
    const y = TOP + ROW_HEIGHT * rows.length
    rows.push(content && `<text class="${classes}" x="${LEFT}" y="${y}">${content}</text>`)
  }
  for (const [i, { kind, text }] of entries.entries()) {
    if (entries[i - 1]?.kind === 'command' && kind === 'output') time += RUN_SECONDS
    if (kind === 'pause') row('', kind)
    else if (isStatuses(text)) {
      const statuses = text.split(' ').map(status => {
        const outcome = status === '200' ? 'ok' : 'refused'
        return `<tspan class="${outcome} ${appears(AFTER_SECONDS.status)}">${status} </tspan>`
      })
      row(statuses.join(''), kind)
    } else {
      const appearing = appears(AFTER_SECONDS[kind])
      const prompt = kind === 'command' ? '$ ' : ''
      for (const [j, part] of wrapped(prompt + text).entries()) {
        const hasPrompt = prompt !== '' && j === 0
        const shown = escapeXml(hasPrompt ? part.slice(prompt.length) : part)
        row(`${hasPrompt ? `<tspan class="prompt">${prompt}</tspan>` : ''}${shown}`, `${kind} ${appearing}`)
      }
    }
  }
  if (time + LAST_FRAME_SECONDS > LOOP_SECONDS)
    throw new Error(
      `The recording takes ${time.toFixed(1)} s, which leaves too little of ${LOOP_SECONDS} s for the last frame. ` +
        'Shorten AFTER_SECONDS, or leave out a command.',
    )

  const height = TOP + ROW_HEIGHT * (rows.length - 1) + BOTTOM
  return svgOf({
    width: WIDTH,
    height,
    title,
    description,
    style: `${STYLE.trim()}\n${animationOf(times)}`,
    body: [
      `<rect class="ground" x="0.5" y="0.5" width="${WIDTH - 1}" height="${height - 1}" rx="8"/>`,
      `<path class="bar" d="M1 30H${WIDTH - 1}"/>`,
      ...[20, 38, 56].map(x => `<circle class="button" cx="${x}" cy="15.5" r="5"/>`),
      '<g xml:space="preserve">',
      ...rows.filter(content => content !== ''),
      '</g>',
    ],
  })
}

/** `200 200 429` */
export function isStatuses(text: string): boolean {
  return /^\d{3}( \d{3})*$/.test(text)
}

/** Breaks before an option, else at a space, and indents what follows. */
function wrapped(text: string): string[] {
  if (text.length <= COLUMNS) return [text]
  const places = [text.lastIndexOf(' -', COLUMNS), text.lastIndexOf(' ', COLUMNS), COLUMNS]
  const end = places.find(place => place > INDENT.length)!
  return [text.slice(0, end), ...wrapped(INDENT + text.slice(end).trimStart())]
}

/** Each class is hidden from the start of the loop until its time. */
function animationOf(times: readonly number[]): string {
  const frames = times.map((time, i) => {
    const percent = Number(((100 * time) / LOOP_SECONDS).toFixed(2))
    return `@keyframes t${i} { 0% { visibility: hidden } ${percent}% { visibility: visible } }\n.t${i} { animation-name: t${i} }`
  })
  return [
    '@media (prefers-reduced-motion: no-preference) {',
    `text, tspan { animation: none ${LOOP_SECONDS}s step-end infinite }`,
    ...frames,
    '}',
  ].join('\n')
}

const STYLE = `
text { font: 12.5px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; white-space: pre; fill: #b1bac4 }
.ground { fill: #0d1117; stroke: #3d444d }
.bar { stroke: #3d444d }
.button { fill: #3d444d }
.command { fill: #f0f6fc }
.prompt { fill: #4493f8 }
.note { fill: #9198a1 }
.ok { fill: #3fb950 }
.refused { fill: #f0883e; font-weight: 700 }
`
