/** A process of `serve` writes JSON lines only. */
import { Console } from 'node:console'
import { Writable } from 'node:stream'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type JsonOutput, writeOnlyJson } from '../../../src/node/serve/json-output.ts'

let written: string
let errors: string
let now: number
let stdout: Writable
let stderr: Writable
let output: JsonOutput

const textSink = (add: (text: string) => void) =>
  new Writable({
    decodeStrings: false,
    write(text, _, done) {
      add(text)
      done()
    },
  })

beforeEach(() => {
  written = ''
  errors = ''
  now = 1000
  stdout = textSink(text => {
    written += text
  })
  stderr = textSink(text => {
    errors += text
  })
  output = writeOnlyJson({ stdout, stderr }, () => now)
})
afterEach(() => output.end())

/** As readers of logs see it: also those that take more characters for the end of a line. */
const lines = () =>
  written
    .split(/[\n\r\u0085\u2028\u2029]/)
    .slice(0, -1)
    .map(line => JSON.parse(line))

const line = (level: string, detail: unknown, more = {}) => ({
  ...{ level, event: 'console', detail, skipped: 0 },
  ...more,
})

describe('the output of a process of serve', () => {
  it('has one line for each call of the console, with its level, also if the text has several lines', () => {
    console.log('a %s\nb', { c: 1 })
    console.warn('\u001b[31mred\u001b[0m')
    console.error(new Error('broken'))
    expect(lines()).toEqual([
      line('info', 'a { c: 1 }\nb'),
      line('warn', '\u001b[31mred\u001b[0m'),
      line('error', expect.stringMatching(/^Error: broken\n {4}at /)),
    ])
    expect(written).not.toContain('\u001b')
  })

  it.each([
    ['standard output', () => stdout, 'info'],
    ['standard error', () => stderr, 'warn'],
  ])('has what is written to %s, also by a console that was made before', (_, stream, level) => {
    new Console(stream()).log('text')
    now = 2000
    stream().write(Buffer.from('bytes'))
    expect(lines()).toEqual([line(level, 'text'), line(level, 'bytes')])
    expect(errors).toBe('')
  })

  it('calls back who writes to it', async () => {
    await new Promise<void>(resolve => stdout.write('text', () => resolve()))
    await new Promise<void>(resolve => stdout.write('text', 'utf8', () => resolve()))
  })

  it('has lines of ours as they are, without a bound', () => {
    const own = Array.from({ length: 20 }, (_, i) => ({ event: 'mine', i }))
    for (const each of own) output.writeLine(JSON.stringify(each))
    expect(lines()).toEqual(own)
  })

  it.each(
    [
      ['{"level":"info","event":"listening"}', '{"level":"info","event":"listening"}\n{"event":"stopped"}'],
      ['{"broken', '[1]', '"text"', 'null', '{\n  "pretty": true\n}'],
    ].flat(),
  )('has %j as text, so that a caller whose text a hook writes cannot forge a line of ours', text => {
    console.log(text)
    now = 2000
    stdout.write(`${text}\n`)
    expect(lines()).toEqual([line('info', text), line('info', text)])
  })

  it('has no character that ends a line or controls a terminal, in text and in lines of ours', () => {
    const text = 'a\u2028b\u2029c\u0085d\u009b31me\u007ff\ud800g\rh'
    console.log(text)
    output.writeLine(JSON.stringify({ text }))
    expect(lines()).toEqual([line('info', text), { text }])
    expect(written).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u2028\u2029]|[\ud800-\udfff]/)
  })

  it('has at most as many lines of text a second as of other events, and says how many were skipped', () => {
    output.bound(2)
    for (let i = 0; i < 5; i++) console.log(i)
    now = 2000
    console.log('next')
    expect(lines()).toEqual([line('info', '0'), line('info', '1'), line('info', 'next', { skipped: 3 })])
  })

  it('has the warnings of Node, except those about experiments', () => {
    for (const name of ['MaxListenersExceededWarning', 'ExperimentalWarning'])
      process.emit('warning', Object.assign(new Error('of Node'), { name }))
    expect(lines()).toEqual([
      { level: 'warn', event: 'warning', detail: 'MaxListenersExceededWarning: of Node', skipped: 0 },
    ])
  })

  it('has no empty lines', () => {
    console.log()
    stdout.write('\n')
    expect(written).toBe('')
  })
})
