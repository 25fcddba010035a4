/** `limit({ key })`: the signature of Cloudflare's rate limiting binding. */
import { show } from '../../config/check/mistake.ts'
import { MAX_COST } from '../limits/arguments.ts'

/** The options of Cloudflare's rate limiting binding. */
export interface KeyOptions {
  /** The value of the limit's only `by` part. */
  key: string
  /** Units that the call costs (default 1), a positive integer. All or nothing: the limit must admit all of them. */
  delta?: number
}

const KEY_OPTIONS = ['key', 'delta']

/** Checks what a caller without types can have sent. @throws TypeError naming the wrong value and the fix */
export function checkKeyOptions(options: unknown, further: unknown): KeyOptions {
  if (typeof options !== 'object' || options === null)
    throw new TypeError(
      `The first argument of limit is ${show(options)}. Call limit({ key }), or limit('name', { … }) with the name of a limit.`,
    )
  if (further !== undefined)
    throw new TypeError(
      `The second argument of limit is ${show(further)}, but limit({ key }) has only one. Use limit({ key, delta }) or limit('name', { … }, { cost }).`,
    )
  const unknown = Object.keys(options).find(name => !KEY_OPTIONS.includes(name))
  if (unknown !== undefined)
    throw new TypeError(`limit({ key }) has no option '${unknown}'. Options: ${KEY_OPTIONS.join(', ')}.`)
  const { key, delta } = options as Record<string, unknown>
  if (typeof key !== 'string') throw new TypeError(`key is ${show(key)}. Use a string.`)
  if (delta !== undefined && !isDelta(delta))
    throw new TypeError(`delta is ${show(delta)}. Use a whole number from 1 to ${MAX_COST}.`)
  return { key, ...(delta !== undefined && { delta }) }
}

const isDelta = (value: unknown): value is number =>
  Number.isInteger(value) && (value as number) >= 1 && (value as number) <= MAX_COST
