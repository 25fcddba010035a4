import { defineConfig } from 'sluicegate'

export default defineConfig({
  // Any API that speaks the protocol of OpenAI; the variable ORIGIN_URL overrides it.
  origin: 'https://api.openai.com',
  // A model can think for a long time before it sends the head of its response.
  originDeadline: '5m',
  units: {
    // Files and forms cost 10,000 tokens, unless their response reports what they cost.
    tokens: {
      estimate: 'llm',
      estimateUnreadable: 10_000,
      actual: { usage: 'openai', includeUsage: true },
    },
  },
  // Each team has keys of its own: npx sluicegate keys create --consumer team-a
  rules: [
    { name: 'minute', by: 'consumer', algorithm: 'sliding-window', limit: 500, period: '1m' },
    {
      name: 'tokens',
      unit: 'tokens',
      by: 'consumer',
      algorithm: 'fixed-window',
      limit: 1_000_000,
      period: 'day',
    },
  ],
})
