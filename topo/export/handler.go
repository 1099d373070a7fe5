package export

import (
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	// maxScrapes bounds the scrapes that are answered at a time; further ones get status 503.
	maxScrapes = 4
	// scrapeWait is after what time a scrape gets status 503.
	scrapeWait = 10 * time.Second
)

// Handler serves the metrics in the text format of Prometheus and in OpenMetrics, whichever the
// scraper asks for.
func (c *Collector) Handler() http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(c)
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes, Timeout: scrapeWait, ErrorHandling: promhttp.ContinueOnError})
}

// toValid replaces bytes that are no UTF-8, which no label may have.
func toValid(s string) string { return strings.ToValidUTF8(s, "�") }
