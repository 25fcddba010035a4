/** A guard around a handler that counts its requests, for every runtime: this file imports nothing of Node. */
import { callerOf, type GuardOptions, guard } from '../../src/set-ups/guard/guard.ts'
import { SET_UP_CONFIGS, type SetUpConfigName } from './set-up-configs.ts'

/** Where a set-up outside this process reports how many requests its handler has received. */
export const RECEIVED_PATH = '/received'

/** Every set-up that can read the client's address from a header reads this one: on one machine all clients have the same address. */
export const ADDRESS_HEADER = 'x-test-address'

type Handle = (request: Request, ...platform: unknown[]) => Response | Promise<Response>

export interface CountedGuard {
  handle: Handle
  received(): number
}

export function countedGuard(config: SetUpConfigName, options: GuardOptions = {}): CountedGuard {
  let count = 0
  const handle: Handle = guard(
    SET_UP_CONFIGS[config],
    options,
  )((request: Request, ..._platform: unknown[]) => {
    count += 1
    return Response.json({ hello: callerOf(request)?.consumer ?? null })
  })
  return { handle, received: () => count }
}

/** Reads the address from the header of the tests. */
export const addressOf = (request: Request) => request.headers.get(ADDRESS_HEADER) ?? undefined

/** A counted guard that also serves `RECEIVED_PATH`, the path that reports the count. */
export function servedGuard(config: SetUpConfigName, options: GuardOptions = {}): Handle {
  const { handle, received } = countedGuard(config, options)
  return (request, ...platform) =>
    new URL(request.url).pathname === RECEIVED_PATH ? Response.json(received()) : handle(request, ...platform)
}
