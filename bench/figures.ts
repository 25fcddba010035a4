/**
 * Figures, and texts with figures in them. A measurement returns the figures of one run; `mergeRuns` puts those of all runs together.
 * Only then are medians and ranges formatted, and targets judged.
 */
import { median } from './measure.ts'

export interface Figure {
  /** The value of each run. */
  values: readonly number[]
  digits: number
  /** Written directly behind the median: ` µs`, `×`. */
  unit: string
  /** A counted value has a range only if the runs differ. */
  isCounted?: true
}

/** Text with figures in it. */
export type Cell = string | Figure | readonly (string | Figure)[]

interface Format {
  unit?: string
  digits?: number
}

/** A measured value: in each run, the median of its rounds. */
export function measured(rounds: readonly number[], { unit = '', digits = 1 }: Format = {}): Figure {
  return { values: [median(rounds)], digits, unit: unit && ` ${unit}` }
}

export function counted(count: number, { unit = '', digits = 0 }: Format = {}): Figure {
  return { values: [count], digits, unit: unit && ` ${unit}`, isCounted: true }
}

/** How many times as much one contender needs as another, round by round. The contenders of a round ran one after the other. */
export function measuredRatio(own: readonly number[], theirs: readonly number[]): Figure {
  return { ...measured(ratiosOf(own, theirs), { digits: 2 }), unit: '×' }
}

export function countedRatio(own: number, theirs: number): Figure {
  return { ...counted(own / theirs, { digits: 2 }), unit: '×' }
}

export function ratiosOf(own: readonly number[], theirs: readonly number[]): number[] {
  return own.map((value, i) => value / theirs[i]!)
}

export const times = (ratio: number) => `${ratio.toFixed(2)}×`

/** The median of ratios, the lowest and the highest: `1.20× (0.98 to 1.40)`. */
export function medianAndRange(ratios: readonly number[]): string {
  return textOf({ values: ratios, digits: 2, unit: '×' })
}

/** One cell with two counts and their ratio. */
export function sideBySide(own: number, theirs: number): Cell {
  return cell`${counted(own)} : ${counted(theirs)} = ${countedRatio(own, theirs)}`
}

/** One cell with the measured values of two contenders, and their ratio. */
export function roundsSideBySide(own: readonly number[], theirs: readonly number[]): Cell {
  return cell`${measured(own)} : ${measured(theirs)} = ${measuredRatio(own, theirs)}`
}

/** A text with figures: cell`${measured(times)} of ${'all'} µs` */
export function cell(texts: TemplateStringsArray, ...parts: Cell[]): Cell {
  return texts.flatMap((text, i) => [text, ...[parts[i] ?? []].flat()])
}

/** `1.20× (0.98 to 1.40)`: the median of the runs, the lowest and the highest. One run has no range. */
export function textOf(content: Cell): string {
  if (typeof content === 'string') return content
  if (!isFigure(content)) return content.map(textOf).join('')
  const { values, digits, unit, isCounted } = content
  const text = (value: number) => value.toFixed(digits)
  const [low, high] = [Math.min(...values), Math.max(...values)].map(text)
  const hasRange = isCounted ? low !== high : values.length > 1
  return `${text(median(values))}${unit}${hasRange ? ` (${low} to ${high})` : ''}`
}

/**
 * Puts what several runs have found together: each figure gets the values of all runs.
 * @throws Error if the runs differ in more than their figures
 */
export function mergeRuns<T>(runs: readonly T[]): T {
  const [first] = runs
  if (isFigure(first))
    return { ...first, values: (runs as unknown as Figure[]).flatMap(({ values }) => values) }
  if (typeof first !== 'object' || first === null) {
    const other = runs.find(run => run !== first)
    if (other !== undefined) throw new Error(`The runs differ: '${first}' and '${other}'.`)
    return first!
  }
  const merged = Object.entries(first).map(([key]) => [key, mergeRuns(runs.map(run => run[key as keyof T]))])
  return (Array.isArray(first) ? merged.map(([, value]) => value) : Object.fromEntries(merged)) as T
}

function isFigure(value: unknown): value is Figure {
  return typeof value === 'object' && value !== null && 'values' in value && 'digits' in value
}
