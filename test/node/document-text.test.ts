import { expect, it } from 'vitest'
import { documentText } from '../../src/node/cli/document-text.ts'

it('documents are shown as a line for each value, and a table for each list of objects', () => {
  const document = {
    consumer: 'acme',
    blockedAt: '2030-01-02T03:04:05.678Z',
    label: '2030-01-02T03:04:05.678Z',
    plan: null,
    kill: { by: 'ops', status: 'over' },
    overrides: ['minute', 'day'],
    keys: [],
    rules: [
      { rule: 'minute', config: { mode: 'shadow' }, byMinute: [1, 0] },
      { rule: 'day', since: '2030-01-02T03:04:00.000Z' },
    ],
  }
  expect(documentText(document)).toBe(
    [
      'consumer     acme',
      'blocked at   2030-01-02 03:04 UTC',
      'label        2030-01-02T03:04:05.678Z',
      'plan         none',
      'kill.by      ops',
      'kill.status  over',
      'overrides    minute, day',
      'keys         none',
      '',
      'rules:',
      'RULE    CONFIG.MODE  BY MINUTE  SINCE',
      'minute  shadow       1, 0',
      'day                             2030-01-02 03:04 UTC',
    ].join('\n'),
  )
})

it('a document changes nothing on a terminal', () => {
  expect(documentText({ reason: 'a\u001b[31m\u202eb', rows: [{ name: '\nx' }] })).toBe(
    'reason  a?[31m?b\n\nrows:\nNAME\n?x',
  )
})
