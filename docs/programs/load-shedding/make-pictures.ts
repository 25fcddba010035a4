/**
 * Makes the pictures of load shedding (docs/internals/simulations.md) from the simulation of test/simulation: `npm run plots`. It is seeded, so the pictures
 * have the same bytes every time. test/docs/load-shedding.test.ts fails when a file differs.
 */
import { writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import type { PressureSettings } from '../../../src/shedding/pressure.ts'
import { publishedGradient2 } from '../../../test/simulation/published-gradient2.ts'
import {
  BEST_FIXED,
  CLASSES,
  FULL_PACE,
  HALF,
  limitBy,
  METHODS,
  RISE,
  runHalfGone,
  runHalvedCapacity,
  runLongOverload,
  runSteady,
  runThreefold,
  SEED,
  startedBy,
  WORKERS,
} from '../../../test/simulation/scenarios.ts'
import type { Second } from '../../../test/simulation/simulation.ts'
import { PRESSURE_SETTINGS } from '../../../test/support/shedding-settings.ts'
import { heading, INK, render } from '../plots/draw.ts'

/** Every picture by the name of its file. */
export function makePictures(): Map<string, string> {
  return new Map([
    ['threefold.svg', drawThreefold()],
    ['paces.svg', drawPaces()],
    ['half-capacity.svg', drawHalfCapacity()],
    ['gradient2.svg', drawGradient2()],
  ])
}

function drawThreefold(): string {
  const { seconds } = runThreefold()
  const bins = binned(seconds, 15)
  const { high, low } = PRESSURE_SETTINGS
  const wanted = (second: Second) => second.classes.reduce((sum, tally) => sum + tally.wanted, 0)
  const successOf = (number: number) => (bin: readonly Second[]) => {
    const sum = (field: 'succeeded' | 'failed') => total(bin, ({ classes }) => classes[number]![field])
    return (100 * sum('succeeded')) / (sum('succeeded') + sum('failed'))
  }
  // The most important class on top of the others.
  const shown = CLASSES.map((name, number) => ({ name, number, stroke: STROKES[number]! })).reverse()
  return drawPanels(
    'Worker utilization shedder: load to three times the usual, and back',
    `an origin that answers 100 requests a second; at its height from ${RISE.top / 60} to ${RISE.falls / 60} minutes`,
    { max: seconds.length / 60, interval: 4, unit: ' min', perUnit: 60 },
    [
      {
        name: 'wanted a second',
        max: 160,
        interval: 50,
        lines: [{ name: 'load', stroke: LOAD, points: points(bins, mean(wanted)) }],
        levels: [{ name: 'capacity', at: 100 }],
      },
      {
        name: 'utilization',
        max: 1,
        interval: 0.5,
        lines: [
          {
            name: '',
            stroke: LOAD,
            points: points(
              bins,
              mean(({ utilization }) => utilization),
            ),
          },
        ],
        levels: [
          { name: `high ${high}`, at: high },
          { name: `low ${low}`, at: low, place: 'insideEndBottom' },
        ],
      },
      {
        name: '% of callers\nrefused',
        max: 100,
        interval: 50,
        // The next panel names the lines, because here all of them end at 0.
        lines: shown.slice(1).map(({ number, stroke }) => ({
          name: '',
          stroke,
          points: points(
            bins,
            mean(({ shares }) => 100 * shares[number]!),
          ),
        })),
      },
      {
        name: '% of requests\nanswered',
        max: 100,
        interval: 50,
        lines: shown.map(({ name, number, stroke }) => ({
          name,
          stroke,
          points: points(bins, successOf(number)),
        })),
      },
    ],
  )
}

/** The pace of the pressure, compared with the one before, in three overloads. */
function drawPaces(): string {
  const scenarios = [
    ['three times\nthe load', (settings: PressureSettings) => runThreefold(false, SEED, settings)],
    ['half of the\nworkers gone', runHalfGone],
    ['steady\nload of 0.85', runSteady],
  ] as const
  const paces = [
    ['full', FULL_PACE, STROKES[0]!],
    ['proportional', PRESSURE_SETTINGS, STROKES[3]!],
  ] as const
  const panels = scenarios.flatMap(([title, run]): Panel[] => {
    const runs = paces.map(([name, settings, stroke]) => ({
      name,
      stroke,
      bins: binned(run(settings).seconds, 10),
    }))
    return [
      {
        name: `${title}:\n% refused`,
        max: 100,
        interval: 50,
        lines: runs.map(({ bins, ...line }) => ({ ...line, name: '', points: points(bins, refusedPart) })),
      },
      {
        name: 'utilization',
        max: 1,
        interval: 0.5,
        lines: runs.map(({ bins, ...line }) => ({
          ...line,
          points: points(
            bins,
            mean(({ utilization }) => utilization),
          ),
        })),
        levels: [{ name: '0.8', at: 0.8 }],
      },
    ]
  })
  return drawPanels(
    'Worker utilization: the two paces',
    'refused: share of all attempts, with those that callers repeat',
    { max: 26, interval: 2, unit: ' min', perUnit: 60 },
    panels,
  )
}

/** The share of attempts that the shedder refuses, in percent. */
function refusedPart(bin: readonly Second[]): number {
  const sum = (field: 'shed' | 'attempts') =>
    total(bin, ({ classes }) => classes.reduce((all, tally) => all + tally[field], 0))
  return (100 * sum('shed')) / sum('attempts')
}

function drawHalfCapacity(): string {
  const fixed = binned(runHalvedCapacity(BEST_FIXED), 2)
  const panels = Object.entries(METHODS).flatMap(([name, method]): Panel[] => {
    const own = binned(runHalvedCapacity(startedBy(method)), 2)
    return [
      {
        name: `${name}:\nlimit, in flight`,
        max: 100,
        interval: 50,
        lines: [
          {
            name: 'limit',
            stroke: STROKES[3]!,
            points: points(
              own,
              mean(({ limit }) => limit),
            ),
          },
          {
            name: 'in flight',
            stroke: STROKES[1]!,
            points: points(
              own,
              mean(({ inFlight }) => inFlight),
            ),
          },
        ],
        levels: [{ name: `best fixed ${BEST_FIXED}`, at: BEST_FIXED }],
      },
      {
        name: 'latency (ms)',
        max: 700,
        interval: 200,
        lines: [
          {
            name: 'best fixed',
            stroke: LOAD,
            points: points(
              fixed,
              mean(({ latencyMs }) => latencyMs),
            ),
          },
          {
            name,
            stroke: STROKES[3]!,
            points: points(
              own,
              mean(({ latencyMs }) => latencyMs),
            ),
          },
        ],
      },
    ]
  })
  return drawPanels(
    'Adaptive limit: half of the origin is lost, and comes back',
    `${WORKERS} workers, ${WORKERS / 2} of them from ${HALF.from} to ${HALF.until} s; callers want 1.4 times what all can do`,
    { max: 240, interval: 40, unit: ' s', perUnit: 1 },
    panels,
  )
}

function drawGradient2(): string {
  const runs = [
    ['published,\na sample a request', publishedGradient2('request'), STROKES[0]!],
    ['published,\na sample a second', publishedGradient2('second'), STROKES[1]!],
    ['Sluice', limitBy(METHODS.gradient!), STROKES[3]!],
  ] as const
  const lines = runs.map(([name, limit, stroke]) => ({
    name,
    stroke,
    bins: binned(runLongOverload(limit), 5),
  }))
  return drawPanels(
    'Gradient2 as published, and the gradient of Sluice, in an overload of ten minutes',
    `${WORKERS} workers; callers want 1.4 times what they can do`,
    { max: 10, interval: 1, unit: ' min', perUnit: 60 },
    [
      {
        name: 'limit',
        max: 350,
        interval: 100,
        height: 170,
        lines: lines.map(({ bins, ...line }) => ({
          ...line,
          points: points(
            bins,
            mean(({ limit }) => limit),
          ),
        })),
      },
      {
        name: 'latency (ms)',
        max: 2000,
        interval: 1000,
        lines: lines.map(({ bins, ...line }) => ({
          ...line,
          name: '',
          points: points(
            bins,
            mean(({ latencyMs }) => latencyMs),
          ),
        })),
      },
    ],
  )
}

interface Stroke {
  color: string
  width: number
  type: 'solid' | number[]
}

/** From the least important class to the critical one. The lines also differ in dashes and width. */
const STROKES: readonly Stroke[] = [
  { color: '#bc4c00', width: 2, type: [3, 3] },
  { color: '#8250df', width: 2, type: [9, 4] },
  { color: '#1a7f37', width: 2, type: [12, 4, 3, 4] },
  { color: '#0969da', width: 2.5, type: 'solid' },
]
const LOAD: Stroke = { color: INK, width: 1.5, type: 'solid' }

interface Panel {
  name: string
  max: number
  interval: number
  height?: number
  lines: { name: string; stroke: Stroke; points: [number, number][] }[]
  /** Horizontal lines. */
  levels?: { name: string; at: number /** Of the name. Default: behind the end. */; place?: string }[]
}

interface TimeAxis {
  max: number
  interval: number
  unit: string
  /** Seconds of one unit. */
  perUnit: number
}

const TOP = 66
const HEIGHT = 96
const GAP = 20

/** Panels below each other, over one time. */
function drawPanels(title: string, subtext: string, time: TimeAxis, panels: readonly Panel[]): string {
  const heights = panels.map(({ height = HEIGHT }) => height)
  const tops = heights.map((_, i) => TOP + heights.slice(0, i).reduce((sum, height) => sum + height + GAP, 0))
  const last = panels.length - 1
  return render(title, tops[last]! + heights[last]! + 36, {
    title: heading(title, subtext),
    grid: panels.map((_, i) => ({ left: 94, right: 140, top: tops[i], height: heights[i] })),
    xAxis: panels.map((_, i) => ({
      gridIndex: i,
      type: 'value',
      min: 0,
      max: time.max,
      interval: time.interval,
      silent: true,
      axisLine: { show: true, lineStyle: { color: INK } },
      axisTick: { show: i === last },
      axisLabel: { show: i === last, color: INK, fontSize: 12, formatter: `{value}${time.unit}` },
      splitLine: { show: false },
    })),
    yAxis: panels.map(({ name, max, interval }, i) => ({
      gridIndex: i,
      type: 'value',
      min: 0,
      max,
      interval,
      name,
      nameLocation: 'middle',
      // Beside the numbers, however many lines the name has.
      nameGap: name.split('\n').length > 2 ? 50 : 36,
      silent: true,
      nameTextStyle: { color: INK, fontSize: 12 },
      axisLabel: { color: INK, fontSize: 12, showMaxLabel: max % interval === 0 },
      splitLine: { lineStyle: { color: '#d8dee4' }, showMaxLine: false },
    })),
    series: panels.flatMap(({ lines, levels = [] }, i) =>
      lines.map(({ name, stroke: { color, ...style }, points: data }, number) => ({
        type: 'line',
        xAxisIndex: i,
        yAxisIndex: i,
        silent: true,
        symbol: 'none',
        data: data.map(([seconds, value]) => [rounded(seconds / time.perUnit, 3), value]),
        lineStyle: { color, ...style },
        itemStyle: { color },
        emphasis: { disabled: true },
        endLabel: { show: name !== '', formatter: name, color, fontSize: 12 },
        labelLayout: { moveOverlap: 'shiftY' },
        ...(number === 0 && {
          markLine: {
            silent: true,
            symbol: 'none',
            data: levels.map(level => ({
              yAxis: level.at,
              lineStyle: { color: INK, type: 'dashed', width: 1 },
              label: {
                show: true,
                formatter: level.name,
                color: INK,
                fontSize: 12,
                position: level.place ?? 'end',
              },
            })),
          },
        }),
      })),
    ),
  })
}

function total(seconds: readonly Second[], of: (second: Second) => number): number {
  return seconds.reduce((sum, second) => sum + of(second), 0)
}

const mean = (of: (second: Second) => number) => (bin: readonly Second[]) => total(bin, of) / bin.length

/** A second is too fine for a picture. */
function binned(seconds: readonly Second[], size: number): Second[][] {
  const count = Math.floor(seconds.length / size)
  return Array.from({ length: count }, (_, i) => seconds.slice(i * size, (i + 1) * size))
}

/** A value for each bin, at its middle. It has two digits after the point, which is finer than a pixel. */
function points(bins: readonly Second[][], of: (bin: readonly Second[]) => number): [number, number][] {
  return bins.map(bin => [bin[0]!.seconds + bin.length / 2, rounded(of(bin), 2)])
}

function rounded(value: number, digits: number): number {
  return Number(value.toFixed(digits))
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const pictures = makePictures()
  for (const [file, svg] of pictures) writeFileSync(new URL(`../../pictures/${file}`, import.meta.url), svg)
  console.log(`Made ${[...pictures.keys()].join(', ')}.`)
}
