/**
 * Draws decisions as SVG, with ECharts and without a browser. The same decisions make the same bytes. On a dark page, a picture has dark
 * colors. No line is identified by its color alone.
 */
import { BarChart, LineChart, ScatterChart } from 'echarts/charts'
import { GridComponent, LegendComponent, MarkLineComponent, TitleComponent } from 'echarts/components'
import { type EChartsCoreOption, init, use } from 'echarts/core'
import { SVGRenderer } from 'echarts/renderers'
import { type Answer, END_SECONDS, LIMIT, PERIOD_SECONDS } from './scenario.ts'

use([BarChart, LineChart, ScatterChart, SVGRenderer])
use([GridComponent, LegendComponent, MarkLineComponent, TitleComponent])

const WIDTH = 840
const [LEFT, RIGHT] = [64, 84]
export const GROUND = '#ffffff'
export const INK = '#24292f'
const FAINT = '#8c959f'
const ADMITTED = '#0969da'
const REFUSED = '#bc4c00'
export const FONT = 'system-ui, sans-serif'

export interface Picture {
  title: string
  answers: readonly Answer[]
  /** The algorithm has windows: a dotted line is drawn where each one begins. */
  hasWindows: boolean
  /** The algorithm has a queue: admitted requests wait for their turn. */
  isQueue: boolean
}

/** Draws one algorithm: the requests admitted in the last period, compared with the limit, and the decision about each arrival. */
export function drawAnswers({ title, answers, hasWindows, isQueue }: Picture): string {
  const admitted = answers.filter(({ allowed }) => allowed)
  const refused = answers.filter(({ allowed }) => !allowed)
  const summary = `${admitted.length} of ${answers.length} requests admitted`
  const within = { top: 62, height: 120 }
  const departures = isQueue ? { top: 196, height: 26 } : { top: 182, height: 0 }
  const decided = { top: departures.top + departures.height + 16, height: 130 }
  const grids = [within, ...(isQueue ? [departures] : []), decided]
  const last = grids.length - 1

  return render(title, decided.top + decided.height + 36, {
    title: [
      heading(title, hasWindows ? `${summary}; dotted: a window begins` : summary),
      ...(isQueue ? [beside(departures.top, 'departures')] : []),
    ],
    grid: grids.map(grid => ({ ...grid, left: LEFT, right: RIGHT })),
    xAxis: grids.map((_, i) => secondsAxis(i, i === last)),
    yAxis: [
      { ...amountAxis(0, `admitted in\nthe last ${PERIOD_SECONDS} s`), max: 21, interval: 5 },
      ...(isQueue ? [{ gridIndex: 1, min: 0, max: 2, show: false }] : []),
      {
        ...amountAxis(last, 'refused   admitted'),
        min: -20,
        max: 12,
        interval: 10,
        axisLabel: { color: INK, formatter: (value: number) => String(Math.abs(value)) },
      },
    ],
    series: [
      {
        ...line(withinPeriod(admitted), ADMITTED),
        markLine: {
          silent: true,
          symbol: 'none',
          data: [
            {
              yAxis: LIMIT,
              lineStyle: { color: INK, type: 'dashed', width: 1.5 },
              label: { ...label(`limit ${LIMIT}`, INK), position: 'end' },
            },
            ...(hasWindows ? windowLines() : []),
          ],
        },
      },
      ...(isQueue
        ? [
            {
              type: 'scatter',
              xAxisIndex: 1,
              yAxisIndex: 1,
              silent: true,
              symbol: 'rect',
              symbolSize: [2.5, 16],
              itemStyle: { color: ADMITTED, opacity: 1 },
              data: admitted.map(({ departure }) => [departure, 1]),
            },
          ]
        : []),
      bars(last, tally(admitted, 1), { color: ADMITTED, borderColor: ADMITTED }),
      {
        ...bars(last, tally(refused, -1), { color: GROUND, borderColor: REFUSED }),
        ...(hasWindows && { markLine: { silent: true, symbol: 'none', data: windowLines() } }),
      },
    ],
  })
}

export interface Line {
  name: string
  answers: readonly Answer[]
}

/** The strokes of the lines in one picture. They also differ in dashes and width. */
const STROKES = [
  { color: '#bc4c00', width: 3, type: 'solid' },
  { color: '#8250df', width: 2, type: 'solid' },
  { color: '#1a7f37', width: 3, type: [9, 4] },
  { color: '#0969da', width: 2, type: [3, 3] },
  { color: '#24292f', width: 3, type: [12, 4, 3, 4] },
]

/** Draws how many requests each algorithm has admitted up to each time. */
export function drawTotals(title: string, lines: readonly Line[]): string {
  return render(title, 388, {
    title: heading(title, `${lines[0]!.answers.length} requests`),
    grid: { top: 62, height: 292, left: LEFT, right: 176 },
    xAxis: secondsAxis(0, true),
    yAxis: { ...amountAxis(0, 'admitted so far'), max: 44, interval: 10 },
    series: lines.map(({ name, answers }, i) => {
      const { color, ...style } = STROKES[i % STROKES.length]!
      const admitted = answers.filter(({ allowed }) => allowed)
      return {
        ...line(totals(admitted), color),
        lineStyle: { color, ...style },
        endLabel: label(name, color),
        labelLayout: { moveOverlap: 'shiftY' },
      }
    }),
  })
}

/** A picture with a name for readers who do not see it. */
export function render(name: string, height: number, option: EChartsCoreOption): string {
  const chart = init(null, null, { renderer: 'svg', ssr: true, width: WIDTH, height })
  chart.setOption({
    animation: false,
    backgroundColor: GROUND,
    textStyle: { fontFamily: FONT },
    ...option,
  })
  const svg = chart.renderToSVGString()
  chart.dispose()
  return cleaned(svg, name)
}

/** For each color of these pictures, the one on a dark page. The colors are those of GitHub's themes. */
const DARK: Readonly<Record<string, string>> = {
  [GROUND]: '#0d1117',
  [INK]: '#f0f6fc',
  [FAINT]: '#9198a1',
  [ADMITTED]: '#4493f8',
  [REFUSED]: '#f0883e',
  '#8250df': '#ab7df8',
  '#1a7f37': '#3fb950',
  // Lines of the grid.
  '#d0d7de': '#3d444d',
  '#d8dee4': '#3d444d',
  // ECharts gives them to axes.
  '#54555a': '#9198a1',
  '#3c3c41': '#9198a1',
  '#b7b9be': '#3d444d',
}

/** @throws Error for a color without a dark one */
function darkStyle(svg: string): string {
  const drawn = svg.replaceAll(/<clipPath.*?<\/clipPath>/gs, '')
  const used = new Set(
    [...drawn.matchAll(/ (fill|stroke)="(#\w+)"/g)].map(([, name, color]) => `${name} ${color}`),
  )
  const rules = [...used].sort().map(each => {
    const [name, color] = each.split(' ') as [string, string]
    if (!DARK[color]) throw new Error(`${color} has no color for dark pages. Add one to DARK.`)
    return `[${name}="${color}"] { ${name}: ${DARK[color]} }`
  })
  return `<style>\n@media (prefers-color-scheme: dark) {\n${rules.join('\n')}\n}\n</style>`
}

/** Adds a name for readers who do not see the picture. Removes styles for a pointer: their names depend on the pictures drawn before. */
function cleaned(svg: string, name: string): string {
  return svg
    .replaceAll(/ class="zr\d+-cls-\d+"| pointer-events="visible"/g, '')
    .replaceAll(/<style >.*?<\/style>\n/gs, '')
    .replaceAll(/\bzr\d+-/g, '')
    .replace('>\n', `>\n<title>${name}</title>\n${darkStyle(svg)}\n`)
    .concat('\n')
}

export function heading(text: string, subtext: string) {
  return {
    text,
    subtext,
    left: 12,
    top: 8,
    itemGap: 4,
    textStyle: { color: INK, fontSize: 16, fontFamily: FONT },
    subtextStyle: { color: INK, fontSize: 13, fontFamily: FONT },
  }
}

/** Right of the panel that begins at `top`. */
function beside(top: number, text: string) {
  return {
    text,
    left: WIDTH - RIGHT + 3,
    top,
    padding: [5, 0],
    textStyle: { color: INK, fontSize: 12, fontWeight: 'normal', fontFamily: FONT },
  }
}

function secondsAxis(gridIndex: number, isLabelled: boolean) {
  return {
    gridIndex,
    type: 'value',
    min: 0,
    max: END_SECONDS,
    interval: 5,
    silent: true,
    // Otherwise an axis under bars begins half a bar earlier than the one above it.
    containShape: false,
    axisLine: { show: isLabelled, lineStyle: { color: INK } },
    axisTick: { show: isLabelled },
    axisLabel: { show: isLabelled, color: INK, fontSize: 12, formatter: '{value} s', showMaxLabel: false },
    splitLine: { show: false },
  }
}

function amountAxis(gridIndex: number, name: string) {
  return {
    gridIndex,
    type: 'value',
    min: 0,
    name,
    nameLocation: 'middle',
    nameGap: 32,
    silent: true,
    nameTextStyle: { color: INK, fontSize: 12 },
    axisLabel: { color: INK, fontSize: 12, showMaxLabel: false },
    splitLine: { lineStyle: { color: '#d8dee4' }, showMaxLine: false },
  }
}

function label(formatter: string, color: string) {
  return { show: true, formatter, color, fontSize: 12, fontFamily: FONT }
}

function line(data: [number, number][], color: string) {
  return {
    type: 'line',
    step: 'end',
    silent: true,
    symbol: 'none',
    data,
    lineStyle: { color, width: 2 },
    itemStyle: { color },
    emphasis: { disabled: true },
  }
}

function bars(index: number, data: [number, number][], style: { color: string; borderColor: string }) {
  return {
    type: 'bar',
    xAxisIndex: index,
    yAxisIndex: index,
    stack: 'arrivals',
    barWidth: 5,
    silent: true,
    data,
    itemStyle: { ...style, borderWidth: 1.2 },
    emphasis: { disabled: true },
  }
}

function windowLines() {
  const windows = Math.floor(END_SECONDS / PERIOD_SECONDS)
  const starts = Array.from({ length: windows }, (_, i) => (i + 1) * PERIOD_SECONDS)
  return starts.map(xAxis => ({
    xAxis,
    lineStyle: { color: FAINT, type: [2, 3], width: 1.5 },
    label: { show: false },
  }))
}

/** Steps: at a time, how many were admitted in the period that ends then. */
function withinPeriod(admitted: readonly Answer[]): [number, number][] {
  const changes = admitted.flatMap(({ at }): [number, number][] => [
    [at, 1],
    [at + PERIOD_SECONDS, -1],
  ])
  return steps(changes)
}

function totals(admitted: readonly Answer[]): [number, number][] {
  return steps(admitted.map(({ at }) => [at, 1]))
}

function steps(changes: [number, number][]): [number, number][] {
  const points: [number, number][] = [[0, 0]]
  for (const [at, by] of changes.toSorted(([a], [b]) => a - b)) {
    const [time, level] = points.at(-1)!
    if (time === at) points.pop()
    if (at <= END_SECONDS) points.push([at, level + by])
  }
  return [...points, [END_SECONDS, points.at(-1)![1]]]
}

/** The number of answers at each time, with the sign of `direction`. */
function tally(answers: readonly Answer[], direction: 1 | -1): [number, number][] {
  const counts = new Map<number, number>()
  for (const { at } of answers) counts.set(at, (counts.get(at) ?? 0) + direction)
  return [...counts]
}
