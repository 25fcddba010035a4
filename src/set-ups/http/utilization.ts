/**
 * POST /_sluice/utilization: a machine of the origin pushes the utilization of its workers.
 *
 *     curl -X POST https://gateway.example/_sluice/utilization -H 'authorization: Bearer <secret>' \
 *       -d '{"reporter":"api-7","utilization":0.83}'
 *
 * The last value of each reporter counts until it is stale. All reporters count equally.
 */
import type { WorkerUtilization } from '../../config/compile-shedding.ts'
import { GatewayError } from '../../errors.ts'
import { decodePush, encodePush } from '../../script/signal.ts'
import { UTILIZATION_SECRET, UTILIZATION_SIGNAL } from '../../shedding/signal-name.ts'
import type { Script, Store } from '../../store/store.ts'
import { createBearerCheck } from './bearer.ts'
import { type Problem, problem } from './problem.ts'

type Pushes = NonNullable<WorkerUtilization['pushes']>

export interface UtilizationPushes extends Pushes {
  /** Name of the signal (src/shedding/signal-board.ts). */
  signal: string
  /** The name of the variable with the secret, and its value. */
  secretName: string
  secret: unknown
}

/**
 * Creates the handler of /_sluice/utilization in a gateway.
 *
 * @param variables of the environment, including the secret
 */
export function createPushReceiver(
  store: Store,
  pushes: Pushes,
  variables: Readonly<Record<string, unknown>> | undefined,
  script: () => Script,
): (request: Request) => Promise<Response> {
  const secret = variables?.[UTILIZATION_SECRET]
  const names = { signal: UTILIZATION_SIGNAL, secretName: UTILIZATION_SECRET }
  return createUtilizationHandler(store, { ...names, secret, ...pushes }, script)
}

const MAX_BYTES = 4096

/**
 * Creates the handler of an isolate.
 *
 * @param store without the breaker, as for health checks, because the state of the breaker is about decisions
 */
export function createUtilizationHandler(
  store: Store,
  { signal, secretName, secret, ...pushes }: UtilizationPushes,
  script: () => Script,
): (request: Request) => Promise<Response> {
  const refuse = createBearerCheck(secret)

  return async request => {
    if (request.method !== 'POST') return wrongMethod(request.method)
    if (refuse === undefined) return noSecret(secretName)
    const refusal = refuse(request)
    if (refusal) return refusal
    const text = await readBody(request)
    if (typeof text !== 'string') return problem(text)
    const sample = parseSample(text)
    if ('status' in sample) return problem(sample)
    try {
      const value = Math.round(sample.utilization * 1000)
      const call = encodePush(script(), { signal, reporter: sample.reporter, value, ...pushes })
      const [reply] = await store.run([call])
      if (reply instanceof GatewayError) throw reply
      decodePush(reply)
    } catch (error) {
      if (error instanceof GatewayError) return notStored(error)
      throw error
    }
    return new Response(null, { status: 204, headers: { 'cache-control': 'no-store' } })
  }
}

interface Sample {
  reporter: string
  utilization: number
}

/** Reads the body, or returns the problem with it. */
async function readBody(request: Request): Promise<string | Problem> {
  // A declared length saves reading the body. A client need not declare it.
  if (Number(request.headers.get('content-length')) > MAX_BYTES) return TOO_LARGE
  const bytes = new Uint8Array(MAX_BYTES)
  let length = 0
  try {
    const reader = request.body?.getReader()
    for (let chunk = await reader?.read(); chunk && !chunk.done; chunk = await reader!.read()) {
      const part = chunk.value as Uint8Array
      if (length + part.length > MAX_BYTES) {
        await reader!.cancel()
        return TOO_LARGE
      }
      bytes.set(part, length)
      length += part.length
    }
  } catch {
    return badRequest('The body ended early. Send it again.')
  }
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: false }).decode(bytes.subarray(0, length))
  } catch {
    return badRequest('The body is not UTF-8. Send JSON in UTF-8.')
  }
}

const EXAMPLE = '{"reporter":"api-7","utilization":0.83}'
const REPORTER = /^[A-Za-z0-9._:-]{1,64}$/

/** Parses a sample, or returns the problem with it. */
function parseSample(text: string): Sample | Problem {
  let body: unknown
  try {
    body = JSON.parse(text)
  } catch {
    return badRequest(`The body is not JSON: ${quote(text)}. Send an object like ${EXAMPLE}.`)
  }
  if (typeof body !== 'object' || body === null || Array.isArray(body)) {
    return badRequest(`The body is ${quote(body)}. Send an object like ${EXAMPLE}.`)
  }
  const unknown = Object.keys(body).find(name => name !== 'reporter' && name !== 'utilization')
  if (unknown !== undefined) {
    return badRequest(`${quote(unknown)} is not a field. Send reporter and utilization only.`)
  }
  const { reporter, utilization } = body as Partial<Record<keyof Sample, unknown>>
  if (typeof reporter !== 'string' || !REPORTER.test(reporter)) {
    return badRequest(
      `reporter is ${quote(reporter)}. Send the name of the machine: 1 to 64 of the characters A-Z a-z 0-9 . _ : -`,
    )
  }
  if (typeof utilization !== 'number' || !(utilization >= 0 && utilization <= 1)) {
    const fix =
      typeof utilization === 'number' && utilization > 1
        ? 'The maximum is 1: all workers are busy. Divide a percentage by 100: 83 % is 0.83.'
        : 'Send a number from 0 to 1: the share of workers that are busy.'
    return badRequest(`utilization is ${quote(utilization)}. ${fix}`)
  }
  return { reporter, utilization }
}

/** The value as JSON, cut off at 60 characters. */
function quote(value: unknown): string {
  const text =
    value === undefined ? 'missing' : typeof value === 'number' ? String(value) : JSON.stringify(value)
  return text.length > 60 ? `${text.slice(0, 60)}…` : text
}

const badRequest = (detail: string): Problem => ({ status: 400, title: 'Bad Request', detail })

const TOO_LARGE: Problem = {
  status: 413,
  title: 'Content Too Large',
  detail: `The body has more than ${MAX_BYTES} bytes. Send an object like ${EXAMPLE}, one for each request.`,
}

function wrongMethod(method: string): Response {
  return problem({
    status: 405,
    title: 'Method Not Allowed',
    detail: `${method} is not allowed here. Send POST with an object like ${EXAMPLE}.`,
    headers: { allow: 'POST' },
  })
}

function noSecret(name: string): Response {
  return problem({
    status: 503,
    title: 'Service Unavailable',
    detail: `Pushes cannot be authenticated: the variable ${name} of the gateway is not set. Set it to a secret.`,
  })
}

function notStored({ code }: GatewayError): Response {
  return problem({
    status: 503,
    title: 'Service Unavailable',
    detail: `The utilization was not stored (${code}). Push again with the next value.`,
    headers: { 'retry-after': '1' },
  })
}
