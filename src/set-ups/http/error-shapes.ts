/**
 * The gateway's own replies in the shape of the errors of OpenAI, Anthropic and Gemini, so that their SDKs show the sentence. A Worker without units
 * that are read in these formats does not carry this file.
 */
import type { GatewayRule } from '../../config/compile-rule.ts'
import type { Units } from '../../config/units-shape.ts'
import type { UsageFormat } from '../../usage/usage.ts'
import type { ErrorShape } from './problem.ts'

/** What OpenAI replies with these statuses: type and code (https://platform.openai.com/docs/guides/error-codes). */
const OPENAI: Readonly<Record<number, readonly [type: string, code: string | null]>> = {
  400: ['invalid_request_error', null],
  401: ['invalid_request_error', 'invalid_api_key'],
  403: ['invalid_request_error', 'permission_denied'],
  413: ['invalid_request_error', 'request_too_large'],
  429: ['rate_limit_error', 'rate_limit_exceeded'],
  503: ['server_error', 'service_unavailable'],
  504: ['server_error', 'timeout'],
}

/** https://docs.anthropic.com/en/api/errors */
const ANTHROPIC: Readonly<Record<number, string>> = {
  400: 'invalid_request_error',
  401: 'authentication_error',
  403: 'permission_error',
  413: 'request_too_large',
  429: 'rate_limit_error',
  503: 'overloaded_error',
  504: 'timeout_error',
}

/** https://ai.google.dev/gemini-api/docs/troubleshooting */
const GEMINI: Readonly<Record<number, string>> = {
  401: 'UNAUTHENTICATED',
  403: 'PERMISSION_DENIED',
  404: 'NOT_FOUND',
  408: 'DEADLINE_EXCEEDED',
  429: 'RESOURCE_EXHAUSTED',
  499: 'CANCELLED',
  503: 'UNAVAILABLE',
  504: 'DEADLINE_EXCEEDED',
}

const SHAPES: Record<UsageFormat, ErrorShape> = {
  openai({ status, detail, extra }) {
    const [type, code] = OPENAI[status] ?? ['server_error', null]
    return { error: { message: detail, type, code, param: null, ...extra } }
  },
  anthropic: ({ status, detail, extra }) => ({
    type: 'error',
    error: { type: ANTHROPIC[status] ?? 'api_error', message: detail, ...extra },
  }),
  gemini: ({ status, detail, extra }) => ({
    error: {
      ...{ code: status, message: detail },
      status: GEMINI[status] ?? (status < 500 ? 'INVALID_ARGUMENT' : 'INTERNAL'),
      ...extra,
    },
  }),
}

/** Finds the shape of errors by the rules that match a request. Undefined: problem details, also if the rules have several formats. */
export type ErrorShapeOf = (rules: readonly GatewayRule[]) => ErrorShape | undefined

export function createErrorShapes(units: Units): ErrorShapeOf {
  return rules => {
    const formats = new Set(rules.flatMap(({ unit }) => units.get(unit)?.errors ?? []))
    const [format] = formats
    return format && formats.size === 1 ? SHAPES[format] : undefined
  }
}
