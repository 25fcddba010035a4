/** Draws the pictures of docs/performance.md from bench/results.md. */
import { FONT, GROUND, heading, INK, render } from '../plots/draw.ts'
import { type Latencies, type Latency, latenciesIn } from './read-results.ts'

export interface Picture {
  svg: string
  /** Its alt text in the page. */
  finding: string
}

const OWN = '#0969da'
const OTHERS = '#8c959f'
const GRID_LINE = '#d0d7de'

/** Every picture by the name of its file. */
export function makePictures(results: string): Map<string, Picture> {
  const latencies = latenciesIn(results)
  return new Map([['latency.svg', { svg: drawLatency(latencies), finding: describeLatencies(latencies) }]])
}

/** Two bars, p50 and p99, for each contender. One panel for each distance to Redis. */
function drawLatency(latencies: readonly Latencies[]): string {
  const title = 'Latency of one decision about six sliding windows'
  const panels = [
    { left: 136, width: 280 },
    { left: 488, width: 280 },
  ]
  const top = 96
  const bars = (index: number, quantile: 'p50' | 'p99') => ({
    ...{ type: 'bar', xAxisIndex: index, yAxisIndex: index, silent: true, barWidth: 14, barGap: '15%' },
    data: latencies[index]!.contenders.map(contender => {
      const color = contender.name === 'Sluice' ? OWN : OTHERS
      return {
        value: contender[quantile],
        itemStyle: { color: quantile === 'p50' ? color : GROUND, borderColor: color, borderWidth: 1.5 },
      }
    }),
    label: {
      ...{ show: true, position: 'right', color: INK, fontSize: 12 },
      ...{ backgroundColor: GROUND, padding: [0, 2] },
      formatter: ({ value }: { value: number }) => value.toFixed(2),
    },
  })
  return render(title, 360, {
    title: [
      heading(
        title,
        'ms, on two scales; filled: p50, outlined: p99; grey: a bare PING, and six slidingWindow calls of @upstash/ratelimit',
      ),
      ...latencies.map(({ distance }, i) => ({
        ...{ text: `Redis ${distance} ms away`, left: panels[i]!.left, top: top - 26, padding: [5, 0] },
        textStyle: { color: INK, fontSize: 12, fontWeight: 'bold', fontFamily: FONT },
      })),
    ],
    grid: panels.map(panel => ({ ...panel, top, bottom: 52 })),
    xAxis: panels.map((_, i) => ({ ...valueAxis('ms'), gridIndex: i })),
    yAxis: latencies.map(({ contenders }, i) => ({
      ...{ gridIndex: i, type: 'category', inverse: true, silent: true },
      data: contenders.map(({ name }) => NAMES[name]),
      axisLine: { show: true, lineStyle: { color: INK } },
      axisTick: { show: false },
      axisLabel: { show: i === 0, color: INK, fontSize: 12 },
    })),
    series: panels.flatMap((_, i) => [bars(i, 'p50'), bars(i, 'p99')]),
  })
}

const NAMES: Record<Latency['name'], string> = {
  PING: 'bare PING',
  Sluice: 'Sluice',
  'six at once': 'six calls at once',
  'six in turn': 'six calls in turn',
}

function describeLatencies(latencies: readonly Latencies[]): string {
  const sentences = latencies.toReversed().map(({ distance, contenders }) => {
    const of = Object.fromEntries(
      contenders.map(({ name, p50 }) => [name, `${p50.toFixed(2)} ms`]),
    ) as Record<Latency['name'], string>
    return [
      `Median with Redis ${distance} ms away: a decision about six sliding windows ${of.Sluice}, a bare PING ${of.PING},`,
      `six slidingWindow calls of @upstash/ratelimit ${of['six at once']} at once and ${of['six in turn']} in turn.`,
    ].join(' ')
  })
  return sentences.join(' ')
}

function valueAxis(name: string) {
  return {
    ...{ type: 'value', name, nameLocation: 'middle', nameGap: 32, min: 0 },
    ...{ axisLabel: { color: INK }, nameTextStyle: { color: INK } },
    splitLine: { lineStyle: { color: GRID_LINE } },
  }
}
