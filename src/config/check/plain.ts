/**
 * Finds values that the schema cannot judge: getters that throw, and objects whose settings are not their own keys. To the schema, a
 * Promise or a Map looks like an object without settings. The Worker copies settings with `{ … }`, which leaves out inherited ones.
 */
import type { Mistake } from '../config-error.ts'
import { pathOf, show } from './mistake.ts'

export function findNotPlain(
  value: unknown,
  keys: readonly (string | number)[] = [],
  seen = new Set<unknown>(),
): Mistake[] {
  if (typeof value !== 'object' || value === null || seen.has(value)) return []
  seen.add(value)
  const isList = Array.isArray(value)
  if (!isList && !isPlainObject(value)) {
    const message = `${show(value)} is not a plain object. Write { … }; if it is a Promise, await it.`
    return [{ path: pathOf(keys), message }]
  }
  return Object.keys(value).flatMap(key => {
    const path = [...keys, isList ? Number(key) : key]
    try {
      return findNotPlain((value as Record<string, unknown>)[key], path, seen)
    } catch (error) {
      return [
        {
          path: pathOf(path),
          message: `cannot be read: ${(error as Error)?.message}. Write the value.`,
        },
      ]
    }
  })
}

/** `{ … }`, also without a prototype, or from another realm. */
export function isPlainObject(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false
  const prototype = Object.getPrototypeOf(value)
  return prototype === null || Object.hasOwn(prototype, 'isPrototypeOf')
}
