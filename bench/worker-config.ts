/** Replaces sluice.config.ts while the Worker is measured: the same rules, with limits that admit every request. */
import { defineConfig } from '../src/config/define.ts'
import { sixRules } from './rules.ts'

export default defineConfig({
  origin: 'https://api.example.com',
  plans: ['free', 'pro'],
  rules: sixRules('admits all', 'as shipped'),
})
