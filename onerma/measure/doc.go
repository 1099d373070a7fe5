// Package measure measures the path between two hosts over their 1RMA NICs, as softrnic/perf does
// over queue pairs. Its results have the form of softrnic/perf.
package measure
