/** Clients of node-redis. */
import { createClient } from 'redis'

type Client = ReturnType<typeof createTemplate>
type Options = NonNullable<Parameters<Client['duplicate']>[0]>

let template: Client | undefined

/**
 * A client that is not connected yet, and speaks RESP2. `createClient` builds a class of several hundred commands for each client
 * with options of its own; a duplicate shares the class of its template.
 */
export function createRedisClient(options: Options) {
  template ??= createTemplate()
  return template.duplicate(options)
}

/** It never connects. */
const createTemplate = () => createClient({ RESP: 2 })
