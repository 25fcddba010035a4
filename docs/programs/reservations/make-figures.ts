/**
 * Puts the table about reservations into docs/internals/simulations.md, and makes its picture: `npm run plots`. The simulation is seeded;
 * test/docs/reservations.test.ts fails when a file is stale.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { heading, INK, render } from '../plots/draw.ts'
import { withTable } from '../reliability/tables.ts'
import { admittedByKnowing, type Result, runTrace, TRACES, WAYS } from './simulation.ts'

export const PAGE = new URL('../../internals/simulations.md', import.meta.url)
export const PICTURE = new URL('../../pictures/reservations.svg', import.meta.url)

export interface Row extends Result {
  trace: string
  way: string
}

/** Runs every trace in every way. */
export function runAll(): Row[] {
  return TRACES.flatMap(trace =>
    WAYS.map(way => ({ trace: trace.what, way: way.what, ...runTrace(trace, way) })),
  )
}

const percent = (share: number) => `${(100 * share).toFixed(2)}%`

/** The page with its table as it should be. */
export function withFigures(page: string, rows: readonly Row[]): string {
  const body = TRACES.flatMap(({ what, calls }) => {
    const knowing = admittedByKnowing(calls)
    const refused = knowing.filter(isAdmitted => !isAdmitted).length / knowing.length
    const own = rows.filter(({ trace }) => trace === what)
    return [
      [what, 'knows the number', percent(refused), '', '0.00%'],
      ...own.map(({ way, refused, needless, overspend }) => [
        ...['', way, percent(refused)],
        ...[percent(needless), percent(overspend)],
      ]),
    ]
  })
  return withTable(page, 'reservations', {
    head: ['trace', 'way', 'refused', 'of these needlessly', 'most above the limit in a minute'],
    rows: body,
  })
}

const COLORS = ['#0969da', '#8250df', '#bc4c00']

/** Two panels: what is refused needlessly, and what is admitted above the limit. */
export function drawPicture(rows: readonly Row[]): string {
  const panels = [
    { name: 'refused needlessly,\n% of calls', of: ({ needless }: Row) => needless, max: 6 },
    { name: 'above the limit,\n% of limit', of: ({ overspend }: Row) => overspend, max: 50 },
  ]
  const tops = [92, 266]
  return render('Three ways to limit tokens that are known only afterwards', 426, {
    title: heading('Three ways to limit tokens that are known only afterwards', 'at 80 % of the limit'),
    legend: {
      ...{ data: WAYS.map(({ what }) => what), left: 84, top: 56, selectedMode: false },
      ...{ itemWidth: 14, itemHeight: 14, itemGap: 48, textStyle: { color: INK, fontSize: 12 } },
    },
    grid: tops.map(top => ({ left: 84, right: 24, top, height: 130 })),
    xAxis: tops.map((_, i) => ({
      ...{ gridIndex: i, type: 'category', data: TRACES.map(({ what }) => what), silent: true },
      axisLine: { show: true, lineStyle: { color: INK } },
      axisTick: { show: false },
      axisLabel: { show: i === 1, color: INK, fontSize: 12 },
    })),
    yAxis: panels.map(({ name, max }, i) => ({
      ...{ gridIndex: i, type: 'value', min: 0, max, interval: max / 2, silent: true },
      ...{ name, nameLocation: 'middle', nameGap: 38 },
      nameTextStyle: { color: INK, fontSize: 12 },
      axisLabel: { color: INK, fontSize: 12 },
      splitLine: { lineStyle: { color: '#d8dee4' } },
    })),
    series: panels.flatMap(({ of }, i) =>
      WAYS.map(({ what }, j) => ({
        ...{ type: 'bar', name: what, xAxisIndex: i, yAxisIndex: i, silent: true, barWidth: 48 },
        itemStyle: { color: COLORS[j] },
        label: { show: true, position: 'top', color: INK, fontSize: 11, formatter: '{c}' },
        data: rows.filter(({ way }) => way === what).map(row => Number((100 * of(row)).toFixed(1))),
      })),
    ),
  })
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const rows = runAll()
  writeFileSync(PAGE, withFigures(readFileSync(PAGE, 'utf8'), rows))
  writeFileSync(PICTURE, drawPicture(rows))
  console.log('Wrote the table of docs/internals/simulations.md and reservations.svg.')
}
