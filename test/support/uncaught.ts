/** Collects errors outside of handlers: each of them would end a process. */
import { afterAll, beforeAll } from 'vitest'

/** Call this in a `describe`. @returns the errors of its tests so far */
export function catchUncaught(): () => readonly unknown[] {
  const uncaught: unknown[] = []
  const keep = (error: unknown) => void uncaught.push(error)
  beforeAll(() => void process.on('uncaughtException', keep).on('unhandledRejection', keep))
  afterAll(() => void process.off('uncaughtException', keep).off('unhandledRejection', keep))
  return () => uncaught
}
