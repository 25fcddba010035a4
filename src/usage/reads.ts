/** Requests to the API of a language model that let no model work, although their replies can report usage: that of the work they show. */
import type { UsageFormat } from './usage.ts'

interface Paths {
  /** Of GET, HEAD and DELETE. */
  reads: RegExp
  /** Of POST. */
  cancels: RegExp
}

/** Only in plain spelling: servers could read any other as the path of a creation. */
const PATHS: Record<UsageFormat, Paths> = {
  openai: {
    // Not /responses alone, which opens a WebSocket for new ones.
    reads:
      /\/(?:responses\/[\w-]+(?:\/input_items)?|chat\/completions(?:\/[\w-]+(?:\/messages)?)?|(?:batches|files)(?:\/[\w-]+(?:\/content)?)?|models(?:\/[\w.:-]+)*)\/?$/,
    cancels: /\/(?:responses|batches)\/[\w-]+\/cancel\/?$/,
  },
  anthropic: {
    reads:
      /\/(?:messages\/batches(?:\/[\w-]+(?:\/results)?)?|files(?:\/[\w-]+(?:\/content)?)?|models(?:\/[\w.:-]+)*)\/?$/,
    cancels: /\/messages\/batches\/[\w-]+\/cancel\/?$/,
  },
}

/** `{}`, which some clients send for no parameters. No prompt fits in. */
const EMPTY_BODY_BYTES = 2

/** Whether a request costs no tokens, whatever its reply reports. The method has not been overridden. */
export function isRead(format: UsageFormat, { method, headers, body }: Request, pathname: string): boolean {
  const { reads, cancels } = PATHS[format]
  if (headers.has('upgrade') || headers.has('transfer-encoding')) return false
  const length = headers.get('content-length')
  const bytes = length === null ? (body ? Number.POSITIVE_INFINITY : 0) : Number(length)
  if (method === 'POST') return bytes <= EMPTY_BODY_BYTES && cancels.test(pathname)
  return bytes === 0 && /^(GET|HEAD|DELETE)$/.test(method) && reads.test(pathname)
}
