// Crawls every HTML page of the sites with crawlee, link by link, all in memory: node crawlee.js FILE-OF-URLS
import { readFileSync } from 'node:fs'
import { CheerioCrawler, Configuration } from '@crawlee/cheerio'

const configuration = new Configuration({ persistStorage: false, logLevel: 'WARNING' })
const pages = []
const crawler = new CheerioCrawler({
  minConcurrency: 64, // as many as plain_spider.py has, from the beginning
  maxConcurrency: 64,
  useSessionPool: false,
  async requestHandler({ request, $, enqueueLinks }) {
    pages.push({ url: request.loadedUrl, title: $('title').text() })
    await enqueueLinks({ strategy: 'same-hostname' })
  },
}, configuration)
await crawler.run(readFileSync(process.argv[2], 'utf8').split(/\s+/).filter(Boolean))
console.log(pages.length)
