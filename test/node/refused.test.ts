/** Which commands the bridge passes on. Names and subcommands are in any case, as text or bytes. */
import { expect, it } from 'vitest'
import { refusalOf } from '../../src/node/rest-bridge/refused.ts'

const refusal = (name: string) => `ERR Command is not available over HTTP: '${name}'`

it.each([
  ['config', 'get', '*'],
  ['Script', 'kill'],
  ['SCRIPT', 'debug', 'YES'],
  ['function', 'Kill'],
  ['XREAD', 'COUNT', '1', 'block', '0', 'STREAMS', 's', '$'],
  ['xreadgroup', 'GROUP', 'g', 'c', 'Block', '0', 'STREAMS', 's', '>'],
])('refuses %s %s', (...command) => {
  expect(refusalOf(command)).toBe(refusal(command[0]!.toLowerCase()))
  expect(refusalOf(command.map(word => Buffer.from(word)))).toBe(refusal(command[0]!.toLowerCase()))
})

it.each([
  [],
  ['SCRIPT'],
  ['SCRIPT', 'LOAD', 'KILL'],
  ['FUNCTION', 'DEBUG'],
  ['XREAD', 'STREAMS', 's', '0'],
  ['SET', 'BLOCK', 'CONFIG'],
  ['EVALSHA', 'kill', '1', 'block', 'debug'],
])('passes on %s %s', (...command) => {
  expect(refusalOf(command)).toBeUndefined()
})
