/** The deadline of hooks. */
import { GatewayError } from '../../errors.ts'

/** @throws GatewayError if it takes longer */
export async function withDeadline<T>(deadlineMs: number, result: T | PromiseLike<T>): Promise<T> {
  if (typeof (result as PromiseLike<T> | undefined)?.then !== 'function') return result
  let timer: unknown
  const tooLate = new Promise<never>((_, reject) => {
    const error = new GatewayError('ERR_HOOK_FAILED', `It took longer than ${deadlineMs} ms.`)
    timer = setTimeout(() => reject(error), deadlineMs)
  })
  try {
    return await Promise.race([result, tooLate])
  } finally {
    clearTimeout(timer as number)
  }
}
