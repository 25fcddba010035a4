/** Draws the pictures of docs/performance.md from bench/results.md. */
import { FONT, GROUND, heading, INK, render } from '../plots/draw.ts'
import {
  type Latencies,
  type Latency,
  latenciesIn,
  type Mixture,
  mixturesIn,
  priceOf,
  type Usage,
} from './read-results.ts'

export interface Picture {
  svg: string
  /** Its alt text in the page. */
  finding: string
}

const OWN = '#0969da'
const OWN_REFUSED = '#bc4c00'
const OTHERS = '#8c959f'
const GRID_LINE = '#d0d7de'

/** Every picture by the name of its file. */
export function makePictures(results: string): Map<string, Picture> {
  const latencies = latenciesIn(results)
  const mixtures = mixturesIn(results)
  return new Map([
    ['latency.svg', { svg: drawLatency(latencies), finding: describeLatencies(latencies) }],
    ['by-rules.svg', { svg: drawByRules(mixtures, TIME), finding: describeByRules(mixtures, TIME) }],
    ['cost.svg', { svg: drawByRules(mixtures, PRICE), finding: describeByRules(mixtures, PRICE) }],
  ])
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
    const times = contenders.map(({ name, p50, p99 }) => {
      return [name, `${p50.toFixed(2)} ms (p99: ${p99.toFixed(2)} ms)`] as const
    })
    const of = Object.fromEntries(times) as Record<Latency['name'], string>
    return [
      `With Redis ${distance} ms away, the median decision about six sliding windows takes ${of.Sluice}, a bare PING ${of.PING},`,
      `six slidingWindow calls of @upstash/ratelimit ${of['six at once']} at once and ${of['six in turn']} in turn.`,
    ].join(' ')
  })
  return sentences.join(' ')
}

/** An amount that a decision needs, such as time, and the texts of its picture. */
interface Need {
  title: string
  subtext: string
  /** How the alt text begins. */
  start: string
  unit: string
  amountOf: (usage: Usage) => number
  format: (amount: number) => string
}

const TIME: Need = {
  title: 'One decision in Redis, by number of rules',
  subtext: 'µs while Redis is busy; grey: as many calls of @upstash/ratelimit',
  start: 'One decision in Redis takes',
  unit: 'µs',
  amountOf: ({ microseconds }) => microseconds,
  format: amount => `${amount.toFixed(1)} µs`,
}

const PRICE: Need = {
  title: 'Price of a million decisions at Upstash, by number of rules',
  subtext: 'one identity, $0.20 per 100,000 commands; grey: as many calls of @upstash/ratelimit',
  start: 'With one identity, a million decisions cost',
  unit: '$ per million',
  amountOf: ({ commands }) => priceOf(commands),
  format: amount => `$${amount.toFixed(2)}`,
}

/** By the number of rules: one decision, and as many calls. */
function drawByRules(mixtures: readonly Mixture[], { title, subtext, unit, amountOf, format }: Need): string {
  const line = (name: string, color: string, type: string, usage: (mixture: Mixture) => Usage) => {
    const data = mixtures.map(mixture => [mixture.rules, amountOf(usage(mixture))] as const)
    return {
      ...{ type: 'line', data, symbolSize: 6, silent: true },
      ...{ lineStyle: { color, type, width: 2 }, itemStyle: { color } },
      endLabel: { show: true, formatter: `${name}: ${format(data.at(-1)![1])}`, color: INK },
      labelLayout: { moveOverlap: 'shiftY' },
    }
  }
  return render(title, 360, {
    title: heading(title, subtext),
    grid: { left: 64, right: 228, top: 66, bottom: 52 },
    xAxis: { ...valueAxis('rules'), max: mixtures.at(-1)!.rules, interval: 4 },
    yAxis: valueAxis(unit),
    series: [
      line('as many calls, admitted', OTHERS, 'solid', ({ admitted }) => admitted.calls),
      line('as many calls, refused', OTHERS, 'dashed', ({ refused }) => refused.calls),
      line('Sluice, admitted', OWN, 'solid', ({ admitted }) => admitted.own),
      line('Sluice, refused', OWN_REFUSED, 'dashed', ({ refused }) => refused.own),
    ],
  })
}

/** The figures with the fewest and with the most rules. */
function describeByRules(mixtures: readonly Mixture[], { start, amountOf, format }: Need): string {
  const print = (usage: Usage) => format(amountOf(usage))
  const ends = [mixtures[0]!, mixtures.at(-1)!]
  const own = ends.map(({ rules, admitted, refused }) => {
    return `${print(admitted.own)} (refused: ${print(refused.own)}) with ${rules} ${rules === 1 ? 'rule' : 'rules'}`
  })
  const calls = ends.map(({ rules, admitted, refused }) => {
    return `${print(admitted.calls)} (refused: ${print(refused.calls)}) with ${rules}`
  })
  return `${start} ${own.join(', and ')}. As many calls of @upstash/ratelimit: ${calls.join(', and ')}.`
}

function valueAxis(name: string) {
  return {
    ...{ type: 'value', name, nameLocation: 'middle', nameGap: 32, min: 0 },
    ...{ axisLabel: { color: INK }, nameTextStyle: { color: INK } },
    splitLine: { lineStyle: { color: GRID_LINE } },
  }
}
