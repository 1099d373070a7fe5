package main

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// logFormatFlag is the flag of all programs that says how they write their logs.
const logFormatFlag = "log-format"

// flags returns the flags of a program, and a function that parses them and begins the log. The libraries of
// Kubernetes write to the same log.
func flags(program string) (fs *flag.FlagSet, begin func(args []string) error) {
	fs = flag.NewFlagSet(program, flag.ExitOnError)
	format := fs.String(logFormatFlag, "text", "format of the log: text (key=value) or json, one object a line")
	return fs, func(args []string) error {
		if err := fs.Parse(args); err != nil {
			return err
		}
		h, err := logHandler(*format, os.Stderr)
		if err != nil {
			return err
		}
		slog.SetDefault(slog.New(h))
		ctrl.SetLogger(logr.FromSlogHandler(h))
		klog.SetSlogLogger(slog.New(h))
		return nil
	}
}

// logHandler returns the handler for a log in one of the formats text and json.
func logHandler(format string, out io.Writer) (slog.Handler, error) {
	switch format {
	case "text":
		return slog.NewTextHandler(out, nil), nil
	case "json":
		return slog.NewJSONHandler(out, nil), nil
	}
	return nil, fmt.Errorf("--%s %.40q: want text or json", logFormatFlag, format)
}
