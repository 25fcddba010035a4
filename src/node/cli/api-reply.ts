/** Reads what the API of a gateway has replied, or another server in its place. No error has text of the reply that a terminal would not show as it is. */
import { AdminError, type AdminFailure } from '../../ops/admin-error.ts'
import { ReplyTooLarge, readTextUpTo, sizeText } from '../../ops/bounded-reply.ts'
import { printable } from '../../ops/names.ts'
import { COMPONENTS, operationOf } from '../../set-ups/api/openapi-operations.ts'
import { type ChangeState, type InputMistake, problemType } from '../../set-ups/api/problems.ts'
import type { Route } from '../../set-ups/api/route.ts'
import { printableLines } from './output.ts'
import { misshapenPlace } from './reply-shape.ts'

/** More than a page of 100 consumers with 100 keys each (bytes). */
const MAX_REPLY = 16_000_000

export const CHECK_URL = 'Check the URL of the gateway, from --api or SLUICE_API_URL.'

const CHECK_TOKEN = 'Check the service token, from --token or SLUICE_API_TOKEN.'

const MAY_BE_DONE = 'If this was a change, it may have been made: check before you repeat it.'

export interface Reply {
  status: number
  headers: Headers
  /** undefined: it is too large. */
  text: string | undefined
}

/** A problem that the API has replied with. */
export class ApiFailure extends AdminError {
  /** Of what an earlier request with the same Idempotency-Key has created. */
  readonly createdId: string | undefined
  readonly change: ChangeState | undefined

  constructor(
    kind: AdminFailure,
    message: string,
    { nextStep, id, change }: { nextStep: string } & Pick<ApiProblem, 'id' | 'change'>,
  ) {
    super(kind, message, nextStep)
    this.createdId = id
    this.change = change
  }
}

/** It is not known what a request has changed. */
export class LostReply extends Error {
  constructor(cause: unknown) {
    super('The reply was lost.', { cause })
  }
}

/** Reads no more than MAX_REPLY bytes. Rejects if the connection breaks. */
export async function readReply({ status, headers, body }: Response): Promise<Reply> {
  const text = await readTextUpTo(MAX_REPLY, { body }).catch(error => {
    if (!(error instanceof ReplyTooLarge)) throw error
  })
  return { status, headers, text: text ?? undefined }
}

/** @returns the document of a success @throws AdminError @throws LostReply */
export function documentOf(route: Route, url: string, reply: Reply): unknown {
  const { status, text } = reply
  if (text === undefined)
    throw new AdminError(
      'store',
      `The reply of ${new URL(url).host} has more than ${sizeText(MAX_REPLY)}, and no reply of the API of a gateway has. ${MAY_BE_DONE}`,
      CHECK_URL,
    )
  const document = parsed(text)
  if (status < 200 || status > 299) throw failureOf(url, reply, document)
  if (document === undefined) throw isJson(reply) ? notWhole() : noApi(reply)
  const place = misshapenPlace(operationOf(route).result, document)
  if (place !== undefined) throw otherForm(place)
  return document
}

function parsed(text: string): object | undefined {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null ? value : undefined
  } catch {
    return undefined
  }
}

interface ApiProblem {
  type: string
  detail: string
  requestId: string
  errors?: readonly InputMistake[]
  id?: string
  change?: ChangeState
}

function failureOf(url: string, reply: Reply, document: object | undefined): Error {
  const { status, headers } = reply
  if (!isProblem(document)) {
    if (status >= 300 && status <= 399) return redirected(url, headers)
    return status >= 500 ? new LostReply(noAnswer(reply)) : noApi(reply)
  }
  const { type, detail, requestId, errors, id, change } = document
  const mistakes = errors?.map(({ pointer, detail }) => (pointer ? `${pointer}: ${detail}` : detail))
  const fix = status === 401 ? [CHECK_TOKEN] : []
  return new ApiFailure(failureKind(status, type), printableLines(mistakes?.join('\n') ?? detail), {
    nextStep: [...fix, `Request ID: ${printable(requestId)}`].join('\n'),
    ...(id !== undefined && { id: printable(id) }),
    ...(change && { change }),
  })
}

const isProblem = (document: object | undefined): document is ApiProblem =>
  misshapenPlace(COMPONENTS.Problem!, document) === undefined &&
  (document as ApiProblem).type.startsWith('urn:sluice:problem:')

function failureKind(status: number, type: string): AdminFailure {
  if (type === problemType('conflict')) return 'conflict'
  if (status === 400) return 'usage'
  if (status === 401 || status === 403) return 'forbidden'
  if (status === 404) return 'not-found'
  return status === 429 || status >= 500 ? 'store' : 'refused'
}

const noApi = (reply: Reply) =>
  new AdminError(
    'store',
    `There is no API of a gateway at this URL: the reply has ${kindOf(reply)}.`,
    `${CHECK_URL} The config of the gateway needs api: {}.`,
  )

/** A proxy in front of the gateway, or its platform, has replied. */
const noAnswer = (reply: Reply) =>
  new AdminError(
    'store',
    `The gateway did not answer: another server has replied with ${kindOf(reply)}. ${MAY_BE_DONE}`,
    CHECK_URL,
  )

const notWhole = () =>
  new AdminError('store', `The reply of the API ended early, or is not JSON. ${MAY_BE_DONE}`, CHECK_URL)

function otherForm(place: string): AdminError {
  const where = place && `: '${printable(place).slice(0, 100)}' is missing, or has another type`
  return new AdminError(
    'store',
    `The reply does not have the form of the API's${where}. ${MAY_BE_DONE}`,
    `${CHECK_URL} If it is right, use the sluicegate of the same version as the gateway.`,
  )
}

function redirected(url: string, headers: Headers): AdminError {
  const location = headers.get('location') ?? ''
  const to = URL.canParse(location, url) ? ` to ${printable(new URL(location, url).origin)}` : ''
  return new AdminError(
    'store',
    `The URL of the API redirects${to}, where the token is not sent.`,
    'Use the URL of the gateway itself, in --api or SLUICE_API_URL.',
  )
}

const kindOf = (reply: Reply) => `status ${reply.status} and ${contentType(reply) || 'no type'}`

const contentType = ({ headers }: Reply) =>
  printable(headers.get('content-type')?.split(';')[0]?.slice(0, 60) ?? '')

const isJson = (reply: Reply) => contentType(reply) === 'application/json'

/**
 * The same document for people: a terminal shows all of its texts as they are. What only programs read stays: a receipt, which is sent back.
 */
export function readable<T>(document: T): T {
  if (typeof document === 'string') return printable(document) as T
  if (typeof document !== 'object' || document === null) return document
  if (Array.isArray(document)) return document.map(readable) as T
  const entries = Object.entries(document).map(([name, value]) =>
    name === 'receipt' ? [name, value] : [printable(name), readable(value)],
  )
  return Object.fromEntries(entries)
}
