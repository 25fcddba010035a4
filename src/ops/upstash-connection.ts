/** Administration over the REST protocol of Upstash, with what people at the command line need: what to do about errors. */

import type { AdminConnection } from '../store/admin-connection.ts'
import { upstashStore } from '../store/upstash.ts'
import { AdminError } from './admin-error.ts'
import { fetchFromStore } from './bounded-reply.ts'
import { DEADLINE_MS, restConnection } from './rest-connection.ts'
import { describeFailure, failureIfNotSent, howToTest, nextStepFor } from './store-failure.ts'

export interface UpstashConnectionOptions {
  url: string
  token: string
  /** The environment of the keys that decisions access. */
  environment?: string | undefined
  /** Default: true. */
  keyLocking?: boolean
  /** Default: false. */
  cluster?: boolean
}

/** @throws GatewayError ERR_CONFIG_INVALID if the URL or the token is not valid */
export function upstashConnection(options: UpstashConnectionOptions): AdminConnection {
  const { url, token, environment, keyLocking = true, cluster = false } = options
  const failureOf = (error: unknown) => {
    const [what, nextStep] = describeFailure(error, { deadlineMs: DEADLINE_MS, test: howToTest(url) })
    const message = `The store at ${new URL(url).host} ${what}`
    return new AdminError('store', message, nextStep, failureIfNotSent(what))
  }
  return {
    ...restConnection({ url, token }, failureOf, fetchFromStore),
    decisions: upstashStore({ url, token, deadlineMs: DEADLINE_MS, keyLocking, cluster, environment }),
    nextStepFor: message => nextStepFor(message, url),
  }
}
