import { Console } from 'node:console'
import { Writable } from 'node:stream'
import { expect, it } from 'vitest'
import { MAX_WAITING_LOG, surviveWithoutLog } from '../../../src/node/serve/messages.ts'

it('a log whose reader does not read takes a bounded memory, and goes on when it reads again', () => {
  const lines: string[] = []
  let read = () => {}
  const log = new Writable({
    decodeStrings: false,
    write(line, _, done) {
      lines.push(line)
      read = done
    },
  })
  surviveWithoutLog(log)
  const console = new Console(log)
  const line = 'x'.repeat(999)
  for (let i = 0; i < 2000; i++) console.log(line)
  expect(log.writableLength).toBe(MAX_WAITING_LOG)
  while (log.writableLength > 0) read()
  console.log('next')
  expect([lines.length, lines.at(-1)]).toEqual([MAX_WAITING_LOG / 1000 + 1, 'next\n'])
})
