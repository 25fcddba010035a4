/** A mistake of ours that only shows while a request is handled: the caller gets a 500, and the log says where. */
import { GatewayError } from '../errors.ts'
import { problem } from './problem.ts'

/** Where it happened, and of foreign errors not their message: it may quote what was being handled. */
export function unexpected(error: Error): Response {
  const frames = (error.stack ?? '').split('\n').filter(line => /^\s+at /.test(line))
  const what = error instanceof GatewayError ? `${error.name}: ${error.message}` : error.name
  console.error(JSON.stringify({ level: 'error', event: 'exception', error: [what, ...frames].join('\n') }))
  return problem({
    status: 500,
    title: 'Internal Server Error',
    detail: 'The gateway failed to handle this request. Its log says why.',
  })
}
