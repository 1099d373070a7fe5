package main

import (
	"errors"
	"testing"
)

// The lines are of perftest 4.5.
func TestColumnOfPerftest(t *testing.T) {
	const bandwidth = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n" +
		"Conflicting CPU frequency values detected\n 65536      5000             159.66             96.40  \t\t   0.001542\n---\n"
	const latency = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]\n" +
		" 8       1000          8.12           90.50        12.25              13.00\n"
	for _, c := range []struct {
		text string
		n    int
		want float64
	}{{bandwidth, 3, 96.40}, {bandwidth, 4, 0.001542}, {latency, 4, 12.25}} {
		if got, err := column(c.n, 1)([]byte(c.text)); err != nil || got != c.want {
			t.Errorf("column %d is %v, %v; want %v", c.n, got, err, c.want)
		}
	}
	for _, text := range []string{"", "#bytes\n", bandwidth[:100]} {
		if got, err := column(4, 1)([]byte(text)); !errors.Is(err, errNoFigure) {
			t.Errorf("%q gives %v, %v", text, got, err)
		}
	}
}
