/** What commands that explain a running deployment say if the store does not help. */
import type { AdminError } from '../../ops/admin-error.ts'

/** `Redis did not answer: …`, or what it answered instead. */
export const unansweredText = ({ message }: Pick<AdminError, 'message'>): string =>
  `${/ answered with an error: /.test(message) ? 'Redis refused to answer' : 'Redis did not answer'}: ${message}`
