/**
 * Requests to the API of a language model that let no model work, although their replies can report usage: that of work which was charged
 * before, or of jobs (src/limiter/reservations/jobs.ts).
 */
import type { UsageFormat } from './usage.ts'

/** Only in plain spelling: servers could read any other as the path of a creation. Behind at most four segments of a prefix, as `/openai/v1`. */
const READS: Record<UsageFormat, RegExp> = {
  openai:
    /^(?:\/[\w.-]+){0,4}\/(?:chat\/completions(?:\/[\w-]+(?:\/messages)?)?|responses\/[\w-]+(?:\/input_items)?|batches(?:\/[\w-]+)?|files(?:\/[\w-]+(?:\/content)?)?|models(?:\/[\w.:-]+){0,3})\/?$/,
  anthropic:
    /^(?:\/[\w.-]+){0,4}\/(?:messages\/batches(?:\/[\w-]+(?:\/results)?)?|files(?:\/[\w-]+(?:\/content)?)?|models(?:\/[\w.:-]+){0,3})\/?$/,
  gemini: /^(?:\/[\w.-]+){0,4}\/(?:models(?:\/[\w.-]+)?|(?:files|cachedContents|batches)(?:\/[\w-]+)?)\/?$/,
}
const CANCELS: Partial<Record<UsageFormat, RegExp>> = {
  openai: /^(?:\/[\w.-]+){0,4}\/(?:responses|batches)\/[\w-]+\/cancel\/?$/,
  anthropic: /^(?:\/[\w.-]+){0,4}\/messages\/batches\/[\w-]+\/cancel\/?$/,
}
/** Some clients send `{}` where they have nothing to send. */
const EMPTY_JSON_BYTES = 2
const JOBS = /\/(?:responses|batches)\/[\w-]+(?:\/cancel)?\/?$/

/**
 * Whether a request costs no tokens, whatever its reply reports. The method has not been overridden.
 * @returns 'job' if its reply can report what a job has cost
 */
export function isRead(
  format: UsageFormat,
  { method, headers, body }: Request,
  pathname: string,
): boolean | 'job' {
  if (headers.has('upgrade') || headers.has('transfer-encoding')) return false
  const length = headers.get('content-length')
  const hasBody = length === null ? body !== null : Number(length) > EMPTY_JSON_BYTES
  const paths = /^(GET|HEAD|DELETE)$/.test(method) ? READS : method === 'POST' ? CANCELS : undefined
  if (hasBody || !paths?.[format]?.test(pathname)) return false
  return format === 'openai' && JOBS.test(pathname) ? 'job' : true
}
