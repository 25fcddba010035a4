import { expect, it, vi } from 'vitest'
import { newReservationId } from '../../../src/limiter/reservations/reservation.ts'

it('gives each request an id of its own, without asking the platform for random bytes each time', () => {
  const asked = vi.spyOn(crypto, 'getRandomValues')
  const ids = new Set(Array.from({ length: 1000 }, newReservationId))
  expect(ids.size).toBe(1000)
  for (const id of ids) expect(id).toMatch(/^[0-9A-Za-z]{12}$/)
  expect(asked.mock.calls.length).toBeGreaterThan(10)
  expect(asked.mock.calls.length).toBeLessThan(100)
  vi.restoreAllMocks()
})
