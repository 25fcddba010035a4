/** Errors of operations that are written for the command line, in replies of the API. */
import { expect, it } from 'vitest'
import { AdminError } from '../../../src/ops/admin-error.ts'
import { withoutCommandLine } from '../../../src/set-ups/api/without-command-line.ts'

const messageOf = async (message: string) =>
  withoutCommandLine(() => Promise.reject(new AdminError('refused', message))).catch(
    (error: AdminError) => `${error.kind}: ${error.message}`,
  )

it('leaves out the sentences that name commands and options', async () => {
  expect(await messageOf('There is no such key. To list all keys: npx sluicegate keys list')).toBe(
    'refused: There is no such key.',
  )
  expect(await messageOf('Name a target. On the command line, --since helps too.')).toBe(
    'refused: Name a target.',
  )
})

it('keeps the first sentence, if all of them do', async () => {
  expect(await messageOf('Use --mode test. Or use --mode live.')).toBe('refused: Use --mode test.')
})

it('passes on results, and other errors as they are', async () => {
  expect(await withoutCommandLine(async () => 7)).toBe(7)
  const error = new TypeError('Use --mode test. Or use --mode live.')
  await expect(withoutCommandLine(() => Promise.reject(error))).rejects.toBe(error)
})
