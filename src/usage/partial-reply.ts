/** Requests to Google's APIs whose caller chooses what the reply contains, so that its usage would not be found. */
import type { UsageFormat } from './usage.ts'

/** The parameters of all of Google's APIs that choose fields, or another form (https://cloud.google.com/apis/docs/system-parameters). */
const CHOOSING = new Set(['fields', 'callback'])
const READ_FORMS = new Set(['', 'json', 'sse'])

/** Behind the colon is what a model has to do. Paths of other APIs have none. */
const OF_GOOGLE = /:|%3a/i

/** @returns the parameter or header that lets the reply have no usage that can be read */
export function choosesReply(
  format: UsageFormat,
  { headers }: Pick<Request, 'headers'>,
  { pathname, searchParams }: URL,
): string | undefined {
  if (format !== 'gemini' && !OF_GOOGLE.test(pathname)) return undefined
  if (headers.has('x-goog-fieldmask')) return 'X-Goog-FieldMask'
  for (const [written, value] of searchParams) {
    const name = written.replace(/^\$/, '').toLowerCase()
    if (CHOOSING.has(name) || (name === 'alt' && !READ_FORMS.has(value.toLowerCase()))) return name
  }
  return undefined
}
