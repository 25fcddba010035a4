/** Some operations have messages that are written for the command line. Only the parts of the API that use them carry this. */
import { AdminError } from '../../ops/admin-error.ts'

/** Runs an operation whose errors can name commands and their options. @throws AdminError without these sentences */
export async function withoutCommandLine<T>(run: () => Promise<T>): Promise<T> {
  try {
    return await run()
  } catch (error) {
    if (!(error instanceof AdminError)) throw error
    const { kind, message, nextStep, failure } = error
    throw new AdminError(kind, textOf(message), nextStep, failure)
  }
}

/** The sentences of a message that are not about the command line. */
function textOf(message: string): string {
  const sentences = message.split(/(?<=[.!?])\s+/)
  const kept = sentences.filter(sentence => !/npx sluicegate|(^|\s)--\w/.test(sentence))
  return (kept.length > 0 ? kept : sentences.slice(0, 1)).join(' ')
}
