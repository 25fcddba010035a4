/** Figures of several runs of the benchmark, and the report that they are put into. */
import { expect, it } from 'vitest'
import { tableOf } from '../../bench/against.ts'
import { cell, counted, measured, measuredRatio, mergeRuns, sideBySide, textOf } from '../../bench/figures.ts'
import { atMost, type Part, roundsRow, sectionOf, withSections } from '../../bench/report.ts'

it('a measured figure is the median of the runs, with the lowest and the highest', () => {
  const figure = mergeRuns([5, 1, 4, 2, 3].map(value => measured([value, value + 1], { unit: 'µs' })))
  expect(textOf(figure)).toBe('3.5 µs (1.5 to 5.5)')
  expect(textOf(measured([1, 2], { unit: 'µs' }))).toBe('1.5 µs')
})

it('a counted figure has a range only if the runs differ', () => {
  expect(textOf(mergeRuns([counted(5), counted(5)]))).toBe('5')
  expect(textOf(mergeRuns([5, 6, 7].map(count => counted(count))))).toBe('6 (5 to 7)')
  expect(textOf(mergeRuns([sideBySide(4, 2), sideBySide(4, 2)]))).toBe('4 : 2 = 2.00×')
})

it('texts between figures stay, and runs must not differ in them', () => {
  const both = (value: number) => cell`${measured([value], { digits: 2 })} / ${measured([2 * value])} ms`
  expect(textOf(mergeRuns([both(1), both(2), both(3)]))).toBe('2.00 (1.00 to 3.00) / 4.0 (2.0 to 6.0) ms')
  expect(() => mergeRuns([{ what: 'a' }, { what: 'b' }])).toThrow("The runs differ: 'a' and 'b'.")
})

it('a target is judged by the median of the runs, and the profile is shown only if it is missed', () => {
  const row = (own: number) =>
    roundsRow('time', ['other', [own], [10]], { unit: 'µs', most: 1.1, why: 'it is slow.' })
  const section = (...runs: number[]) =>
    sectionOf({ name: 'times', findings: { rows: [mergeRuns(runs.map(row))] } }, 'a day')
  const reached = section(9, 20, 10)
  expect(reached).toContain('| 1.00× (0.90 to 2.00) | ≤ 1.1× | yes ')
  expect(reached).not.toContain('it is slow.')
  expect(section(9, 20, 12)).toMatch(/\| no +\|\n\n- Missed: it is slow\.$/)
  expect(atMost(measuredRatio([1], [2]), 3)).toMatchObject({ text: '≤ 3×', most: 3 })
})

it('a section is replaced, or put where it belongs', () => {
  const part = (name: string): Part => ({ name, findings: { notes: ['new'] } })
  const renew = (name: string, report: string) =>
    withSections([part(name)], report, { when: 'today', names: ['a', 'b', 'c'] })
  const section = (name: string) => `## ${name}\n\nMeasured on today.\n\n- new\n`
  const report = '# Benchmark\n\n## A\n\nold\n\n## C\n\nold\n'
  expect(renew('a', report)).toBe(`# Benchmark\n\n${section('A')}\n## C\n\nold\n`)
  expect(renew('b', report)).toBe(`# Benchmark\n\n## A\n\nold\n\n${section('B')}\n## C\n\nold\n`)
  expect(renew('c', report)).toBe(`# Benchmark\n\n## A\n\nold\n\n${section('C')}`)
})

it('a comparison with another commit reports only what is above the noise', () => {
  const values = (...all: number[]) => all.map(value => new Map([['time', value]]))
  expect(tableOf('abc', values(10, 10.1, 10.2), values(12, 12.2, 12.1))).toMatch(/1\.20× .* slower +\|$/)
  expect(tableOf('abc', values(10, 12, 14), values(12, 10, 14))).toMatch(/ - +\|$/)
})
