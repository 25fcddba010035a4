/** A full level of the fleet refuses the least important classes first. */
import { expect, it } from 'vitest'
import { runLevel } from './fleet-level.ts'

it('with more load than the limit, admits nearly all requests of the most important class', () => {
  const { admitted, used } = runLevel(320, 1.2, true)
  expect(admitted[0]).toBeGreaterThan(0.99)
  expect(admitted[1]).toBeGreaterThan(0.9)
  expect(admitted[2]).toBeLessThan(0.5)
  expect(used).toBeGreaterThan(0.95)
})

it('without room for the more important ones, admits all classes alike', () => {
  const { admitted } = runLevel(320, 1.2, false)
  expect(Math.max(...admitted) - Math.min(...admitted)).toBeLessThan(0.01)
})

it('with less load than the limit, refuses nothing', () => {
  expect(Math.min(...runLevel(320, 0.8, true).admitted)).toBeGreaterThan(0.999)
})
