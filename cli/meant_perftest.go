package cli

import (
	_ "embed"
	"strings"
	"sync"
)

//go:embed perftest_options.txt
var perftestOptions string

// perftestFlags are the options of perftest that perf does not have, from the table in perftest_options.txt.
var perftestFlags = sync.OnceValue(func() (list []meantFlag) {
	for line := range strings.Lines(perftestOptions) {
		options, write, ok := strings.Cut(strings.TrimSpace(line), " | ")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		for option := range strings.SplitSeq(options, ",") {
			list = append(list, meantFlag{option, "perf", write})
		}
	}
	return list
})
