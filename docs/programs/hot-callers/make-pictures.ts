/**
 * Makes the pictures of leases (docs/internals/simulations.md) from the simulation: `npm run plots`. It is seeded, so the pictures have the same bytes every
 * time. test/docs/hot-callers.test.ts fails when a file differs.
 */
import { writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { heading, INK, render } from '../plots/draw.ts'
import { accuracyOverLimit, LEASES, type LeaseFor, type Point, tripsOverRate } from './simulation.ts'

/** Every picture by the name of its file. */
export async function makePictures(): Promise<Map<string, string>> {
  return new Map([
    ['trips.svg', await drawTrips()],
    ['accuracy.svg', await drawAccuracy()],
  ])
}

async function drawTrips(): Promise<string> {
  const panels: Panel[] = []
  for (const { name, isolates } of FLEETS) {
    const runs = await runsOf(lease => tripsOverRate(isolates, lease))
    panels.push({
      name: `trips per request,\n${name}`,
      ...{ min: 0, max: 1, interval: 0.25, height: 150 },
      lines: linesOf(runs, ({ tripsPerRequest }) => tripsPerRequest),
    })
  }
  return drawPanels(
    'Trips to the store per request of one caller',
    'by its requests a second, in all isolates together; it stays at half of its limit',
    { min: 1, max: 2000 },
    panels,
  )
}

async function drawAccuracy(): Promise<string> {
  const excess: Panel[] = []
  const used: Panel[] = []
  for (const { name, isolates, mostExcess } of FLEETS) {
    const runs = await runsOf(lease => accuracyOverLimit(isolates, lease))
    const bounds = linesOf(runs, ({ held, perSecond }) => (100 * held) / perSecond)
    excess.push({
      name: `excess, % of limit,\n${name}`,
      ...{ min: 0, max: mostExcess, interval: mostExcess / 3, height: 130 },
      lines: [
        ...linesOf(runs, ({ excess, perSecond }) => (100 * excess) / perSecond),
        ...bounds.map(line => ({ ...line, name: '', isBound: true })),
      ],
    })
    used.push({
      name: `used, % of limit,\n${name}`,
      ...{ min: 90, max: 110, interval: 10, height: 90 },
      lines: linesOf(runs, ({ utilization }) => 100 * utilization),
    })
  }
  return drawPanels(
    'Accuracy, by the limit: the most that an origin has seen above it in one second',
    'a caller that sends 0.3 or 2 times its limit a second, by chance; dotted: the bound, which is what isolates hold',
    { min: 10, max: 1000 },
    [...excess, ...used],
  )
}

const FLEETS = [
  { name: 'one isolate', isolates: 1, mostExcess: 30 },
  { name: '50 isolates', isolates: 50, mostExcess: 60 },
]

interface Line {
  name: string
  lease: LeaseFor
  points: [number, number][]
  isBound?: boolean
}

interface Panel {
  name: string
  min: number
  max: number
  interval: number
  height: number
  lines: Line[]
}

interface Run {
  lease: LeaseFor
  points: Point[]
}

async function runsOf(run: (lease: LeaseFor) => Promise<Point[]>): Promise<Run[]> {
  const runs: Run[] = []
  for (const lease of LEASES) runs.push({ lease, points: await run(lease) })
  return runs
}

/** One for each lease. */
function linesOf(runs: readonly Run[], of: (point: Point) => number): Line[] {
  return runs.map(({ lease, points }) => ({
    ...{ name: lease ?? 'no lease', lease },
    points: points.map(point => [point.perSecond, Number(of(point).toFixed(3))]),
  }))
}

/** The lines also differ in dashes and width. */
const STROKES: Record<string, { color: string; width: number; type: 'solid' | number[] }> = {
  none: { color: INK, width: 1.5, type: 'solid' },
  '100ms': { color: '#8250df', width: 2, type: [9, 4] },
  '250ms': { color: '#0969da', width: 3, type: 'solid' },
  '1s': { color: '#bc4c00', width: 2, type: [12, 4, 3, 4] },
}

const TOP = 66
const GAP = 44

/** Panels below each other, over one logarithmic axis of rates. */
function drawPanels(
  title: string,
  subtext: string,
  rates: { min: number; max: number },
  panels: readonly Panel[],
): string {
  const tops = panels.map((_, i) => panels.slice(0, i).reduce((sum, { height }) => sum + height + GAP, TOP))
  const last = panels.length - 1
  return render(title, tops[last]! + panels[last]!.height + 36, {
    title: heading(title, subtext),
    grid: panels.map(({ height }, i) => ({ left: 84, right: 84, top: tops[i], height })),
    xAxis: panels.map((_, i) => ({
      ...{ gridIndex: i, type: 'log', ...rates, silent: true },
      axisLine: { show: true, lineStyle: { color: INK } },
      axisTick: { show: i === last },
      axisLabel: { show: i === last, color: INK, fontSize: 12, formatter: '{value}/s' },
      splitLine: { show: false },
    })),
    yAxis: panels.map(({ name, min, max, interval }, i) => ({
      ...{ gridIndex: i, type: 'value', min, max, interval, silent: true },
      ...{ name, nameLocation: 'middle', nameGap: 38 },
      nameTextStyle: { color: INK, fontSize: 12 },
      axisLabel: { color: INK, fontSize: 12 },
      splitLine: { lineStyle: { color: '#d8dee4' } },
    })),
    series: panels.flatMap(({ lines }, i) =>
      lines.map(({ name, lease, points, isBound }) => {
        const { color, ...style } = STROKES[lease ?? 'none']!
        return {
          ...{ type: 'line', xAxisIndex: i, yAxisIndex: i, silent: true, symbol: 'none', data: points },
          lineStyle: { color, ...(isBound ? { width: 1.5, type: [2, 3] } : style) },
          itemStyle: { color },
          emphasis: { disabled: true },
          endLabel: { show: name !== '', formatter: name, color, fontSize: 12 },
          labelLayout: { moveOverlap: 'shiftY' },
        }
      }),
    ),
  })
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const pictures = await makePictures()
  for (const [file, svg] of pictures) writeFileSync(new URL(`../../pictures/${file}`, import.meta.url), svg)
  console.log(`Made ${[...pictures.keys()].join(', ')}.`)
}
