/**
 * Requests to the API of a language model that let no model work, although their replies can report usage: that of work which was charged
 * before. Background responses and batches are not among them, because their creation costs its estimate only.
 */
import type { UsageFormat } from './usage.ts'

/** Only in plain spelling: servers could read any other as the path of a creation. Behind at most four segments of a prefix, as `/openai/v1`. */
const READS: Record<UsageFormat, RegExp> = {
  openai:
    /^(?:\/[\w.-]+){0,4}\/(?:chat\/completions(?:\/[\w-]+(?:\/messages)?)?|files(?:\/[\w-]+(?:\/content)?)?|models(?:\/[\w.:-]+){0,3})\/?$/,
  anthropic: /^(?:\/[\w.-]+){0,4}\/(?:files(?:\/[\w-]+(?:\/content)?)?|models(?:\/[\w.:-]+){0,3})\/?$/,
}

/** Whether a request costs no tokens, whatever its reply reports. The method has not been overridden. */
export function isRead(format: UsageFormat, { method, headers, body }: Request, pathname: string): boolean {
  if (headers.has('upgrade') || headers.has('transfer-encoding')) return false
  const length = headers.get('content-length')
  const hasBody = length === null ? body !== null : Number(length) !== 0
  return !hasBody && /^(GET|HEAD|DELETE)$/.test(method) && READS[format].test(pathname)
}
