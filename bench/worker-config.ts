/** Replaces sluice.config.ts while the Worker is measured: the same rules, with limits that admit every request. */
import { defineConfig } from '../src/config/define.ts'
import { classicRules } from './rules.ts'

export default defineConfig({
  origin: 'https://api.example.com',
  plans: ['free', 'pro'],
  rules: classicRules('admits all'),
})
