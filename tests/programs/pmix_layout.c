/*
 * Prints how the header of PMIx lays out structures: sizes, offsets, and the places of a server's functions.
 */
#include <pmix_server.h>
#include <stddef.h>
#include <stdio.h>

#define PLACE(name) (offsetof(pmix_server_module_t, name) / sizeof(void *))

int main(void)
{
    printf("%zu %zu %zu %zu %zu ", sizeof(pmix_proc_t), sizeof(pmix_value_t), sizeof(((pmix_value_t *)0)->data), sizeof(pmix_info_t),
           sizeof(pmix_data_array_t));
    printf("%zu %zu %zu %zu %zu %zu;", offsetof(pmix_proc_t, rank), offsetof(pmix_value_t, data), offsetof(pmix_info_t, flags),
           offsetof(pmix_info_t, value), offsetof(pmix_data_array_t, size), offsetof(pmix_data_array_t, array));
    printf(" %zu %zu %zu %zu %zu %zu", PLACE(client_connected), PLACE(client_finalized), PLACE(abort), PLACE(fence_nb), PLACE(direct_modex),
           PLACE(publish));
    printf(" %zu %zu %zu %zu %zu %zu", PLACE(lookup), PLACE(unpublish), PLACE(spawn), PLACE(connect), PLACE(disconnect), PLACE(job_control));
    printf(", %s\n", sizeof(pmix_server_module_t) < 128 * sizeof(void *) ? "fewer than 128" : "too many");
    return 0;
}
