package cli

import (
	"net/http"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/topo/crashlog"
	"github.com/rdmalab/rdmalab/topo/export"
	"github.com/rdmalab/rdmalab/topo/web"
)

// defaultMetrics is the address on which metrics are served.
const defaultMetrics = "127.0.0.1:9864"

func metricsCmd() *cobra.Command {
	var listen, logFormat string
	var list, all bool
	cmd := &cobra.Command{
		Use:        "metrics",
		Short:      "Serve the counters of racks to Prometheus",
		SuggestFor: []string{"prometheus", "exporter"},
		Args:       cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if list {
				for _, f := range export.Families() {
					if err := say(cmd, "%s  %s  %s", f.Name, f.Type, f.Help); err != nil {
						return err
					}
				}
				return nil
			}
			name, err := rackName(cmd)
			if err != nil {
				return err
			}
			if _, err := newLog(cmd.ErrOrStderr(), logFormat); err != nil {
				return err
			}
			if logFormat == logJSON && !crashlog.Supervised() {
				return supervise("rack", name, "process", cmd.Name())
			}
			racks := func() []string { return []string{name} }
			if all {
				racks = racksUp
			}
			l, err := listenOn(listen)
			if err != nil {
				return err
			}
			mux := http.NewServeMux()
			mux.Handle("GET /metrics", export.New(export.Config{Version: readVersion().Version, Racks: racks}).Handler())
			mux.Handle("GET /{$}", http.RedirectHandler("/metrics", http.StatusFound))
			if err := say(cmd, "metrics at http://%s/metrics", l.Addr()); err != nil {
				return err
			}
			return web.Serve(cmd.Context(), l, mux)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", defaultMetrics, "address and port; port 0 is any free one")
	logFormatFlag(cmd, &logFormat)
	cmd.Flags().BoolVar(&all, "all-racks", false, "all racks that are up, instead of the one of --rack")
	cmd.Flags().BoolVar(&list, "list", false, "print the metrics with their types and meaning, and end")
	return cmd
}
