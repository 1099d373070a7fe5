package pathtrace

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// WriteText writes a table. For each stage it has the median, a bar for its part of the sum of all
// medians, and the 99th percentile. For a nil Breakdown it writes nothing.
func (b *Breakdown) WriteText(w io.Writer) error {
	if b == nil {
		return nil
	}
	var sum time.Duration
	for _, s := range b.Stages {
		sum += s.Median
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(t, "WHERE THE TIME GOES (%d of %d operations followed)\tMEDIAN\tP99\t\n", b.Followed, b.Operations)
	for _, s := range b.Stages {
		share := float64(s.Median) / float64(max(1, sum))
		_, _ = fmt.Fprintf(t, "  %s\t%s\t%s\t%3.0f%% %s\n", s.Name, micros(s.Median), micros(s.P99), 100*share, strings.Repeat("#", int(share*40+0.5)))
	}
	_, _ = fmt.Fprintf(t, "  from post to next post\t%s\t%s\t\n", micros(b.Total.Median), micros(b.Total.P99))
	for _, s := range b.Calls {
		_, _ = fmt.Fprintf(t, "  a send call of %s\t%s\t%s\t\n", s.Name, micros(s.Median), micros(s.P99))
	}
	if b.Missed > 0 {
		_, _ = fmt.Fprintf(t, "  later operations were not recorded: %d events had no room; use fewer --iters\t\t\t\n", b.Missed)
	}
	return t.Flush()
}

func micros(d time.Duration) string { return fmt.Sprintf("%.2f us", float64(d)/1e3) }
